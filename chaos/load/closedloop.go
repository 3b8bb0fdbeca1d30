package load

import (
	"cmp"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// clientStagger is the minimum time over which the clients of a closed loop start, so that they do not send in waves.
const clientStagger = 10 * time.Second

// loopClient is one client of a closed loop, which runs one session (tree or chat) after the other.
type loopClient struct {
	id         uint64
	number     int // index among all
	region     int32
	rng        *rand.Rand
	begunCount uint64 // sessions started so far
}

// nextID is the ID of the client's next session.
func (c *loopClient) nextID() uint64 {
	c.begunCount++
	return mixBits(c.id ^ mixBits(c.begunCount))
}

// closedLoop is the first requests of a closed loop's clients.
type closedLoop struct {
	roots []*Request
}

func (l *closedLoop) NextRequest() (*Request, error) {
	if len(l.roots) == 0 {
		return nil, io.EOF
	}
	r := l.roots[0]
	l.roots = l.roots[1:]
	return r, nil
}

// newClosedLoop starts the workload's clients, the given number in each region, each with the request that first
// makes.
func (w *Workload) newClosedLoop(number []int, first func(c *loopClient) *Request) RootSource {
	l := &closedLoop{}
	for region := range w.Regions {
		n := number[min(region, len(number)-1)]
		if len(w.Clients) > 0 {
			n = 0
			if region < len(w.Clients) {
				n = w.Clients[region]
			}
		}
		for i := range n {
			id := mixBits(w.Seed ^ mixBits(uint64(region)<<32|uint64(i)|1<<57))
			c := &loopClient{id: id, number: len(l.roots), region: int32(region), rng: rand.New(rand.NewPCG(id, 0xc11e))}
			r := first(c)
			r.At = time.Duration(c.rng.Float64() * float64(max(clientStagger, w.Every)))
			r.Tenant = int32(c.number)
			l.roots = append(l.roots, r)
		}
	}
	slices.SortStableFunc(l.roots, func(a, b *Request) int { return cmp.Compare(a.At, b.At) })
	return l
}

// makeRequest makes one of a client's requests, limited to the workload's maximum lengths.
func (c *loopClient) makeRequest(w *Workload, course continuation, session uint64, turn int, prompt []Piece, output int, answer uint64) *Request {
	r := &Request{
		Region: c.region, Tenant: int32(c.number), Session: session, Turn: int32(turn),
		Prompt: prompt, PromptTokens: countPromptTokens(prompt), Output: output, Answer: answer, continuation: course,
	}
	w.capLengths(r)
	return r
}

func countPromptTokens(prompt []Piece) int {
	a := Arrival{Prompt: prompt}
	return a.PromptTokens()
}
