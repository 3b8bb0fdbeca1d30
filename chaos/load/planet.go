package load

import (
	"cmp"
	"container/heap"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// planet is clients of several models, each at home in a region whose local time is its own.
type planet struct {
	w       *Workload
	clients genClients
	n       uint64
}

// planetModels are asked for where nothing else is said.
var planetModels = []string{"m-large", "m-mid", "m-small"}

// client names a model's client.
func (w *Workload) client(model, number int) uint64 {
	return mix(w.Seed ^ mix(uint64(model)<<32|uint64(number)|1<<53))
}

// planetModels reads what the clients of the workload's models ask, in the models' order: of all models where it names none.
func (w *Workload) planetModels() (models []*genModel, err error) {
	if len(w.Models) == 0 {
		w.Models = planetModels
	}
	for _, name := range w.Models {
		rates, lengths, err := genFiles(name)
		if err != nil {
			return nil, err
		}
		m, err := readGen(name, filepath.Join(w.Traces, filepath.FromSlash(rates)), filepath.Join(w.Traces, filepath.FromSlash(lengths)))
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}

func (w *Workload) planet() (Roots, error) {
	models, err := w.planetModels()
	if err != nil {
		return nil, err
	}
	var total float64
	for _, m := range models {
		total += m.total()
	}
	speed := 1.0
	if w.Rate > 0 {
		speed = w.Rate / total
	}
	p := &planet{w: w}
	tenants := int32(0)
	for i, m := range models {
		for _, number := range slices.Sorted(maps.Keys(m.rates)) {
			id := w.client(i, number)
			c := &genClient{model: m, number: number, id: id, index: int32(i), tenant: tenants, speed: speed, region: w.region(id)}
			c.offset = int((w.From + w.Regions[c.region].Shift) / window)
			tenants++
			if c.advance() {
				p.clients = append(p.clients, c)
			}
		}
	}
	heap.Init(&p.clients)
	return p, nil
}

// Next takes the client who is due next.
func (p *planet) Next() (*Request, error) {
	if len(p.clients) == 0 {
		return nil, io.EOF
	}
	c := p.clients[0]
	p.n++
	session := mix(c.id ^ mix(p.n))
	in, out := c.lengths()
	r := &Request{
		At: c.due, Session: session, Region: c.region, Model: c.index, Tenant: c.tenant,
		Prompt: []Piece{{ID: session, Tokens: in}}, PromptTokens: in, Output: out,
	}
	p.w.cap(r)
	if c.advance() {
		heap.Fix(&p.clients, 0)
	} else {
		heap.Pop(&p.clients)
	}
	return r, nil
}

// genClient is one client's arrivals, a window after the other. The times between them are drawn twice from one seed:
// once to know their sum, which is to be the window's length, and once to use them.
type genClient struct {
	model         *genModel
	number        int
	id            uint64
	index, tenant int32
	region        int32
	speed         float64
	offset        int // windows that the client's local time is ahead of the run's
	window        int // of the run
	left          int // arrivals of this window
	scale         float64
	rate          *genRate
	gaps          *rand.Rand
	sizes         *rand.Rand
	at            float64 // seconds into the window
	due           time.Duration
}

// advance goes to the next arrival; false when the client has none in a whole trace.
func (c *genClient) advance() bool {
	for empty := 0; c.left == 0; empty++ {
		if empty > c.model.windows {
			return false
		}
		if c.rate != nil || empty > 0 {
			c.window++
		}
		c.open()
	}
	c.left--
	c.at += c.gap() * c.scale
	c.due = time.Duration(c.window)*window + time.Duration(c.at*float64(time.Second))
	return true
}

// open draws a window's arrivals.
func (c *genClient) open() {
	local := int32(((c.window+c.offset)%c.model.windows + c.model.windows) % c.model.windows)
	list := c.model.rates[c.number]
	i, ok := slices.BinarySearchFunc(list, local, func(r genRate, w int32) int { return cmp.Compare(r.window, w) })
	c.at, c.left = 0, 0
	seed := mix(c.id ^ mix(uint64(c.window)))
	c.sizes = rand.New(rand.NewPCG(seed, 0x517e))
	if !ok {
		return
	}
	c.rate = &list[i]
	mean := float64(c.rate.rate) * c.speed * window.Seconds()
	c.left = int(mean)
	if c.sizes.Float64() < mean-float64(c.left) {
		c.left++
	}
	if c.left == 0 {
		return
	}
	c.gaps = rand.New(rand.NewPCG(seed, 0x6a95))
	var sum float64
	for range c.left + 1 {
		sum += c.gap()
	}
	c.gaps = rand.New(rand.NewPCG(seed, 0x6a95))
	c.scale = window.Seconds() / max(sum, 1e-300)
}

// gap is a time between arrivals, in any unit.
func (c *genClient) gap() float64 {
	if c.rate.gamma {
		return gamma(c.gaps, float64(c.rate.shape))
	}
	return math.Pow(c.gaps.ExpFloat64(), 1/float64(c.rate.shape))
}

// lengths draws a request's, from the client's own of the time of day where there are any, else from somebody's.
func (c *genClient) lengths() (in, out int) {
	list := c.model.lengths[c.number]
	var g *genLengths
	if len(list) == 0 {
		g = c.model.anybody(c.sizes)
	} else {
		local := int32(((c.window+c.offset)%c.model.windows + c.model.windows) % c.model.windows)
		i, ok := slices.BinarySearchFunc(list, local, func(g genLengths, w int32) int { return cmp.Compare(g.window, w) })
		if !ok {
			i = max(i-1, 0)
		}
		g = &list[i]
	}
	return max(1, int(math.Round(g.in.draw(c.sizes)))), max(1, int(math.Round(g.out.draw(c.sizes))))
}

// gamma draws from a Gamma distribution of scale 1 (Marsaglia and Tsang, 2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(1-rng.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	for {
		x := rng.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v * boost
		}
	}
}

type genClients []*genClient

func (g genClients) Len() int      { return len(g) }
func (g genClients) Swap(i, j int) { g[i], g[j] = g[j], g[i] }
func (g genClients) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(g[i].due, g[j].due), cmp.Compare(g[i].tenant, g[j].tenant)) < 0
}
func (g *genClients) Push(x any) { *g = append(*g, x.(*genClient)) }
func (g *genClients) Pop() any {
	last := len(*g) - 1
	x := (*g)[last]
	*g = (*g)[:last]
	return x
}
