package load

import (
	"cmp"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// stagger is the time over which the clients of a closed loop begin, or longer where each asks only every so often: they would ask in
// waves.
const stagger = 10 * time.Second

// client is one client of a closed loop, who begins with one thing after the other: trees or chats.
type client struct {
	id     uint64
	number int // among all
	region int32
	rng    *rand.Rand
	things uint64 // begun so far
}

// next names the client's next thing.
func (c *client) next() uint64 {
	c.things++
	return mix(c.id ^ mix(c.things))
}

// loop is the clients of a closed loop at their beginning.
type loop struct {
	roots []*Request
}

func (l *loop) Next() (*Request, error) {
	if len(l.roots) == 0 {
		return nil, io.EOF
	}
	r := l.roots[0]
	l.roots = l.roots[1:]
	return r, nil
}

// closed begins the workload's clients, so many in each region, each with what first makes.
func (w *Workload) closed(number []int, first func(c *client) *Request) Roots {
	l := &loop{}
	for region := range w.Regions {
		n := number[min(region, len(number)-1)]
		if len(w.Clients) > 0 {
			n = 0
			if region < len(w.Clients) {
				n = w.Clients[region]
			}
		}
		for i := range n {
			id := mix(w.Seed ^ mix(uint64(region)<<32|uint64(i)|1<<57))
			c := &client{id: id, number: len(l.roots), region: int32(region), rng: rand.New(rand.NewPCG(id, 0xc11e))}
			r := first(c)
			r.At = time.Duration(c.rng.Float64() * float64(max(stagger, w.Every)))
			r.Tenant = int32(c.number)
			l.roots = append(l.roots, r)
		}
	}
	slices.SortStableFunc(l.roots, func(a, b *Request) int { return cmp.Compare(a.At, b.At) })
	return l
}

// request is one of a client's, with its lengths cut to the workload's longest.
func (c *client) request(w *Workload, course course, session uint64, turn int, prompt []Piece, output int, answer uint64) *Request {
	r := &Request{
		Region: c.region, Tenant: int32(c.number), Session: session, Turn: int32(turn),
		Prompt: prompt, PromptTokens: promptTokens(prompt), Output: output, Answer: answer, course: course,
	}
	w.cap(r)
	return r
}

func promptTokens(prompt []Piece) int {
	a := Arrival{Prompt: prompt}
	return a.PromptTokens()
}
