package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// arrived hands a request to its replica's engine.
func (r *run) arrived(x *ride) {
	w := x.there.worker
	if w.zone.down {
		r.broke(x)
		return
	}
	if r.s.OnDecision != nil {
		r.s.OnDecision(Decision{
			At: time.Duration(r.now), Request: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Reason: rivals[r.rival],
		})
	}
	r.submit(x, w)
}

// spoke books the first token of a request that another system has placed.
func (r *run) spoke(x *ride) {
	t, n := x.there, int64(x.req.PromptTokens)
	t.queued, t.running = t.queued-n, t.running+n
	t.latency.Observe(t.load, time.Duration(r.now-x.placed).Seconds(), r.time(r.now))
}

// left books a request out of its balancers.
func (r *run) left(x *ride) {
	if t := x.there; t != nil {
		n := int64(x.req.PromptTokens)
		t.load--
		if x.first > 0 {
			t.running -= n
		} else {
			t.queued -= n
		}
		x.there = nil
	}
}

// broke is a request whose replica is gone: it is tried once more if no byte of it has come.
func (r *run) broke(x *ride) {
	p := x.push
	had := x.first > 0
	if x.there != nil {
		x.there.said.down = true // until a probe is answered
	}
	r.left(x)
	x.worker, x.seq = nil, nil
	switch {
	case had:
		r.count(x, func(c *Counts) { c.Cut++ })
		r.end(x, false)
	case x.tries > 0:
		r.refuse(x, openai.CodeUpstream)
	default:
		x.tries++
		r.out.Retried++
		r.push(x, p)
	}
}

// over books a request out of all balancers, however it ended.
func (r *run) over(x *ride) {
	r.left(x)
	if x.from != nil {
		x.from.load--
		x.from = nil
	}
	if x.push != nil {
		r.drain(x.push)
	}
}
