package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/pick"
)

// sketchEvery is how often a model's sketch is made anew: what is hot changes slowly, and a sketch that did not change is
// not sent again.
const sketchEvery = time.Second

// sketch is what is told of one model's cached prefixes.
type sketch struct {
	hot   *pick.Hot
	last  []capacity.Prefix
	since time.Time
}

// mark names the beginnings of a visit's prompt as gateways do.
func (f *floor) mark(v *visit) {
	if f.orders.prefixSeed != 0 {
		v.marks = capacity.Landmarks(v.markRoom[:0], f.orders.prefixSeed, f.orders.prefixOwner(v.hop.Tenant), v.model, v.env.Prompt)
	}
}

// warms notes that a visit's prompt was sent to a worker.
func (p *pool) warms(v *visit, now time.Time) {
	if len(v.marks) == 0 {
		return
	}
	if p.sketch.hot == nil {
		p.sketch.hot = pick.NewHot()
	}
	p.sketch.hot.Note(v.marks, v.query.Blocks, v.query.PromptTokens, int64(len(v.env.Prompt)), now)
}

// of is the sketch as a summary holds it. It does not change afterwards.
func (s *sketch) of(x *pick.Index, now time.Time) []capacity.Prefix {
	if s.hot == nil {
		return nil
	}
	if age := now.Sub(s.since); age >= sketchEvery || age < 0 {
		s.last, s.since = s.hot.Sketch(x, capacity.MaxPrefixes), now
	}
	return s.last
}

// forgetSketches begins anew: what is counted has names that nobody compares with any more.
func (f *floor) forgetSketches() {
	for _, p := range f.pools {
		p.sketch = sketch{}
	}
}
