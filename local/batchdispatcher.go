package local

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
	"github.com/spillway-lb/spillway/local/sched"
)

// dispatcherIdleTimeout is how long a model's batch dispatcher is kept without requests.
const dispatcherIdleTimeout = 30 * time.Second

// batchDispatcher merges the requests for one model. One goroutine (runDispatcher) owns its batcher and coalesced
// parts.
type batchDispatcher struct {
	parent      *batchDispatchers
	model       string
	memberCount int // guarded by batchDispatchers.mu
	batcher     *batch.Batcher[*coalescedPart]
	join        chan *batchMember
	leave       chan *batchMember
	finished    chan *batchCall
	placed      chan *batchCall // calls that a worker has accepted
}

// coalescedPart holds the members that wait for one part's answer: more than one when their requests are identical.
type coalescedPart struct {
	item    *batch.Item[*coalescedPart]
	members []*batchMember
	call    *batchCall // nil while the part waits
}

// batchCall is one call in progress.
type batchCall struct {
	batch          *batch.Call[*coalescedPart]
	requests       []*zoneRequest // one for each part: its first member's request
	cancel         context.CancelFunc
	responses      []*partResponse // one for each part, set when the call has ended
	refusedAsWhole bool            // the engine refused the call as a whole, not parts of it
	placed         bool            // a worker has the call; owned by the dispatcher

	reportStarted func() // called when a worker has the call
}

func newBatchDispatcher(b *batchDispatchers, model string) *batchDispatcher {
	return &batchDispatcher{
		parent: b, model: model, batcher: batch.NewBatcher[*coalescedPart](b.agent.policy.Load().batchConfig()),
		join: make(chan *batchMember), leave: make(chan *batchMember), finished: make(chan *batchCall), placed: make(chan *batchCall),
	}
}

// awaitResponse waits for a member's share, for its deadline, or until its client leaves.
func (s *batchDispatcher) awaitResponse(r *batchMember) (*partResponse, *openai.Error) {
	stop, v := s.parent.agent.ctx.Done(), r.request
	gone := v.httpRequest.Context().Done()
	select {
	case s.join <- r:
	case <-gone:
		return nil, nil
	case <-stop:
		return nil, openai.NoCapacity(s.model, openai.MinRetryAfter)
	}
	var late <-chan time.Time
	if !v.Deadline.IsZero() {
		t := time.NewTimer(time.Until(v.Deadline))
		defer t.Stop()
		late = t.C
	}
	var waits <-chan time.Time
	if r.above.writer != nil {
		t := time.NewTimer(reportAfter)
		defer t.Stop()
		waits = t.C
	}
	var refusal *openai.Error
	for done := false; !done; {
		select {
		case got := <-r.response:
			return got, nil
		case <-stop:
			return nil, openai.UpstreamFailed("this instance stopped before the answer arrived")
		case <-gone:
			done = true
		case <-late:
			refusal, done = openai.DeadlineUnmeetable("local"), true
		case <-waits:
			select {
			case <-r.started:
			default:
				r.above.reportQueued()
			}
		case <-r.started:
			waits = nil
			r.above.reportStarted()
		}
	}
	select {
	case s.leave <- r:
	case <-stop:
	}
	return nil, refusal
}

// runDispatcher runs until the agent stops or no request has arrived for dispatcherIdleTimeout.
func (s *batchDispatcher) runDispatcher() {
	timer := time.NewTimer(dispatcherIdleTimeout)
	defer timer.Stop()
	for {
		select {
		case <-s.parent.agent.ctx.Done():
			return
		case r := <-s.join:
			s.addMember(r, time.Now())
		case r := <-s.leave:
			s.removeMember(r)
		case t := <-s.placed:
			s.reportStarted(t)
		case t := <-s.finished:
			s.deliverResponses(t)
		case <-timer.C:
			if s.batcher.IsEmpty() && s.parent.retireDispatcher(s) {
				return
			}
		}
		s.batcher.SetConcurrency(s.parent.agent.scheduler.countReadyWorkers(s.model))
		now := time.Now()
		for c := s.batcher.NextCall(now); c != nil; c = s.batcher.NextCall(now) {
			s.startCall(c, now)
		}
		wait := dispatcherIdleTimeout
		if at := s.batcher.NextDue(); !at.IsZero() {
			wait = time.Until(at)
		}
		timer.Reset(wait)
	}
}

// addMember adds a request to a waiting or running identical part, or else to a future call. A request that fits
// neither is sent alone.
func (s *batchDispatcher) addMember(r *batchMember, now time.Time) {
	a := s.parent.agent
	a.scheduler.update(func(s *sched.Scheduler) { s.Admission.RecordAck(r.request.Ticket) })
	s.batcher.SetConfig(a.policy.Load().batchConfig())
	r.joinedAt = now
	if it := s.batcher.FindIdentical(r.part, r.tenant, r.request.Class); it != nil {
		s.parent.coalesced.WithLabelValues(s.model).Inc()
		r.coalescedPart = it.Value
		if t := r.coalescedPart.call; t != nil && t.placed {
			r.started <- struct{}{}
		}
		r.coalescedPart.members = append(r.coalescedPart.members, r)
		s.addPending(1)
		return
	}
	p := &coalescedPart{members: []*batchMember{r}}
	p.item = &batch.Item[*coalescedPart]{Part: r.part, Tenant: r.tenant, Class: r.request.Class, Value: p}
	if !s.batcher.AddItem(p.item, now) {
		r.response <- nil
		return
	}
	r.coalescedPart = p
	s.addPending(1)
}

func (s *batchDispatcher) addPending(more int) {
	s.parent.pending.WithLabelValues(s.model).Add(float64(more))
}

// removeMember removes a request that no longer waits. A call without waiting members is cancelled.
func (s *batchDispatcher) removeMember(r *batchMember) {
	p := r.coalescedPart
	if p == nil {
		return
	}
	i := slices.Index(p.members, r)
	if i < 0 {
		return // its share is already delivered
	}
	s.addPending(-1)
	if p.members = slices.Delete(p.members, i, i+1); len(p.members) > 0 {
		return
	}
	if p.call == nil {
		s.batcher.RemoveItem(p.item)
		return
	}
	for _, it := range p.call.batch.Items {
		if len(it.Value.members) > 0 {
			return
		}
	}
	s.batcher.AbandonCall(p.call.batch)
	p.call.cancel()
}

// startCall sends a call in its own goroutine.
func (s *batchDispatcher) startCall(c *batch.Call[*coalescedPart], now time.Time) {
	b := s.parent
	b.callSize.WithLabelValues(s.model).Observe(float64(c.Size))
	b.calls.WithLabelValues(s.model, c.Reason.String()).Inc()
	ctx, cancel := context.WithCancel(b.agent.ctx)
	t := &batchCall{batch: c, cancel: cancel, requests: make([]*zoneRequest, len(c.Items)), reportStarted: func() {}}
	if !b.agent.cfg.Plain {
		t.reportStarted = func() {
			select {
			case s.placed <- t:
			case <-b.agent.ctx.Done():
			}
		}
	}
	for i, it := range c.Items {
		it.Value.call = t
		t.requests[i] = it.Value.members[0].request
		for _, r := range it.Value.members {
			b.waitSeconds.WithLabelValues(s.model).Observe(now.Sub(r.joinedAt).Seconds())
		}
	}
	b.agent.wg.Go(func() {
		defer cancel()
		b.sendCall(ctx, t)
		select {
		case s.finished <- t:
		case <-b.agent.ctx.Done():
		}
	})
}

// reportStarted signals the members of a call that a worker has it.
func (s *batchDispatcher) reportStarted(t *batchCall) {
	t.placed = true
	for _, it := range t.batch.Items {
		for _, r := range it.Value.members {
			r.started <- struct{}{}
		}
	}
}

// deliverResponses delivers the answer of a call to its members.
func (s *batchDispatcher) deliverResponses(t *batchCall) {
	s.batcher.FinishCall(t.batch, t.refusedAsWhole)
	for i, it := range t.batch.Items {
		for _, r := range it.Value.members {
			r.response <- t.responses[i]
		}
		s.addPending(-len(it.Value.members))
		it.Value.members = nil
	}
}
