package load

import (
	"cmp"
	"container/heap"
	"io"
)

// serveGenSource is clients of several models, each in a region with its own local time.
type serveGenSource struct {
	workload *Workload
	clients  clientHeap
	count    uint64
}

// NextRequest returns the request of the client that is due next.
func (p *serveGenSource) NextRequest() (*Request, error) {
	if len(p.clients) == 0 {
		return nil, io.EOF
	}
	c := p.clients[0]
	p.count++
	session := mixBits(c.id ^ mixBits(p.count))
	in, out := c.drawLengths()
	r := &Request{
		At: c.due, Session: session, Region: c.region, Model: c.modelIndex, Tenant: c.tenant,
		Prompt: []Piece{{ID: session, Tokens: in}}, PromptTokens: in, Output: out,
	}
	p.workload.capLengths(r)
	if c.advanceArrival() {
		heap.Fix(&p.clients, 0)
	} else {
		heap.Pop(&p.clients)
	}
	return r, nil
}

type clientHeap []*serveGenClient

func (g clientHeap) Len() int      { return len(g) }
func (g clientHeap) Swap(i, j int) { g[i], g[j] = g[j], g[i] }
func (g clientHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(g[i].due, g[j].due), cmp.Compare(g[i].tenant, g[j].tenant)) < 0
}
func (g *clientHeap) Push(x any) { *g = append(*g, x.(*serveGenClient)) }
func (g *clientHeap) Pop() any {
	last := len(*g) - 1
	x := (*g)[last]
	*g = (*g)[:last]
	return x
}
