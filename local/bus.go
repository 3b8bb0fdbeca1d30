package local

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
)

// busIdle is how long a bus waits for riders before it goes off the road.
const busIdle = 30 * time.Second

// bus merges the requests for one model. One goroutine owns its lane and its berths.
type bus struct {
	batcher *batcher
	model   string
	riders  int // guarded by the batcher's lock
	lane    *batch.Lane[*berth]
	join    chan *rider
	leave   chan *rider
	back    chan *trip
}

// berth holds those who wait for one part's answer: more than one when they ask for the same.
type berth struct {
	item   *batch.Item[*berth]
	riders []*rider
	trip   *trip // nil while the part waits
}

// trip is one call under way.
type trip struct {
	call    *batch.Call[*berth]
	visits  []*visit // one for each part, of whoever asked first
	cancel  context.CancelFunc
	shares  []*share // one for each part, once it is back
	refused bool     // the engine refused the call, and none of its parts alone
}

func newBus(b *batcher, model string) *bus {
	return &bus{
		batcher: b, model: model, lane: batch.NewLane[*berth](b.agent.policy.Load().batching()),
		join: make(chan *rider), leave: make(chan *rider), back: make(chan *trip),
	}
}

// ride waits for a rider's share, its deadline, or for the caller to leave.
func (s *bus) ride(r *rider) (*share, *openai.Error) {
	stop, v := s.batcher.agent.ctx.Done(), r.visit
	gone := v.r.Context().Done()
	select {
	case s.join <- r:
	case <-gone:
		return nil, nil
	case <-stop:
		return nil, openai.NoCapacity(s.model, openai.MinRetryAfter)
	}
	var late <-chan time.Time
	if !v.deadline.IsZero() {
		t := time.NewTimer(time.Until(v.deadline))
		defer t.Stop()
		late = t.C
	}
	var refusal *openai.Error
	select {
	case got := <-r.done:
		return got, nil
	case <-stop:
		return nil, openai.Upstream("this instance stopped before the answer was there")
	case <-gone:
	case <-late:
		refusal = openai.DeadlineUnmeetable("local")
	}
	select {
	case s.leave <- r:
	case <-stop:
	}
	return nil, refusal
}

// run drives until the agent stops or nobody has ridden for a while.
func (s *bus) run() {
	timer := time.NewTimer(busIdle)
	defer timer.Stop()
	for {
		select {
		case <-s.batcher.agent.ctx.Done():
			return
		case r := <-s.join:
			s.take(r, time.Now())
		case r := <-s.leave:
			s.drop(r)
		case t := <-s.back:
			s.settle(t)
		case <-timer.C:
			if s.lane.Empty() && s.batcher.retire(s) {
				return
			}
		}
		s.lane.SetWidth(s.batcher.agent.floor.ready(s.model))
		now := time.Now()
		for c := s.lane.Next(now); c != nil; c = s.lane.Next(now) {
			s.start(c, now)
		}
		wait := busIdle
		if at := s.lane.Wake(); !at.IsZero() {
			wait = time.Until(at)
		}
		timer.Reset(wait)
	}
}

// take gives a rider a place: beside somebody who asks for the same, in a call to come, or none.
func (s *bus) take(r *rider, now time.Time) {
	a := s.batcher.agent
	a.floor.acked(r.visit.hop.Ticket)
	s.lane.Configure(a.policy.Load().batching())
	r.joined = now
	if it := s.lane.Twin(r.part, r.tenant, r.visit.class); it != nil {
		s.batcher.shared.WithLabelValues(s.model).Inc()
		r.berth = it.Value
		r.berth.riders = append(r.berth.riders, r)
		s.riding(1)
		return
	}
	p := &berth{riders: []*rider{r}}
	p.item = &batch.Item[*berth]{Part: r.part, Tenant: r.tenant, Class: r.visit.class, Value: p}
	if !s.lane.Add(p.item, now) {
		r.done <- nil
		return
	}
	r.berth = p
	s.riding(1)
}

func (s *bus) riding(more int) { s.batcher.riding.WithLabelValues(s.model).Add(float64(more)) }

// drop takes out a rider that no longer waits. A call that nobody waits for any more is given up.
func (s *bus) drop(r *rider) {
	p := r.berth
	if p == nil {
		return
	}
	i := slices.Index(p.riders, r)
	if i < 0 {
		return // its share was on its way
	}
	s.riding(-1)
	if p.riders = slices.Delete(p.riders, i, i+1); len(p.riders) > 0 {
		return
	}
	if p.trip == nil {
		s.lane.Remove(p.item)
		return
	}
	for _, it := range p.trip.call.Items {
		if len(it.Value.riders) > 0 {
			return
		}
	}
	s.lane.Abandon(p.trip.call)
	p.trip.cancel()
}

// start sends a call on its way.
func (s *bus) start(c *batch.Call[*berth], now time.Time) {
	b := s.batcher
	b.size.WithLabelValues(s.model).Observe(float64(c.Size))
	b.calls.WithLabelValues(s.model, c.Reason.String()).Inc()
	ctx, cancel := context.WithCancel(b.agent.ctx)
	t := &trip{call: c, cancel: cancel, visits: make([]*visit, len(c.Items))}
	for i, it := range c.Items {
		it.Value.trip = t
		t.visits[i] = it.Value.riders[0].visit
		for _, r := range it.Value.riders {
			b.delay.WithLabelValues(s.model).Observe(now.Sub(r.joined).Seconds())
		}
	}
	b.agent.wg.Go(func() {
		defer cancel()
		b.travel(ctx, t)
		select {
		case s.back <- t:
		case <-b.agent.ctx.Done():
		}
	})
}

// settle hands out what a call brought back.
func (s *bus) settle(t *trip) {
	s.lane.Done(t.call, t.refused)
	for i, it := range t.call.Items {
		for _, r := range it.Value.riders {
			r.done <- t.shares[i]
		}
		s.riding(-len(it.Value.riders))
		it.Value.riders = nil
	}
}
