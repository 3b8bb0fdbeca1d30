package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

type queueItem = queue.Item[*visit]

// outputCost is what an output token costs in prompt tokens.
const outputCost = 2

// line fills in what the queue needs to know of a visit.
func (f *floor) line(v *visit, p *pool, now time.Time) {
	it := &v.item
	it.Tenant, it.Class, it.Value, it.Weight = v.flow(), v.class, v, f.orders.weight(v.hop.Tenant)
	it.Work, it.Bytes = max(1, v.query.PromptTokens), int64(len(v.body))
	it.Cost = cost(v.query.PromptTokens, v.expected(), p.pace.or(defaultPace))
	it.Deadline = now.Add(f.patience(v))
	if !v.deadline.IsZero() && v.deadline.Before(it.Deadline) {
		it.Deadline = v.deadline
	}
	it.Due, it.Lead = f.begins(v)
	it.Firm = v.sheddable()
	if last := it.Due.Add(-it.Lead); it.Firm && last.Before(it.Deadline) {
		it.Deadline = last
	}
}

// begins is when a visit's first token is due, and how long before that it must enter.
func (f *floor) begins(v *visit) (due time.Time, lead time.Duration) {
	due = v.due
	if due.IsZero() {
		due = v.arrived.Add(f.orders.ttft(v.model, v.class))
	}
	if !v.deadline.IsZero() && v.deadline.Before(due) {
		due = v.deadline
	}
	return due, max(0, due.Sub(v.arrived)) / 8
}

// steady says whether a visit whose client named how fast tokens should come may wait for a batch in which they do: while it can
// still begin in time, and to the end where it is sheddable.
func (f *floor) steady(v *visit, now time.Time) bool {
	if v.query.Step <= 0 {
		return false
	}
	due, lead := f.begins(v)
	return v.sheddable() || now.Before(due.Add(-lead))
}

// sheddable says that a request is refused rather than answered late: it is of the class that goes first when there is more
// to do than can be done, and its client said when it is of use. What it would take late is what another could be in time by.
func (v *visit) sheddable() bool { return v.class == spec.Batch && !v.due.IsZero() }

// defaultPace is the time of one prompt token before any request was placed, in seconds.
const defaultPace = 1.0 / 20000

// cost of a request in seconds of GPU time, by the time that one prompt token takes.
func cost(uncached, output int64, pace float64) float64 {
	return float64(uncached+outputCost*output) * pace
}

// expected is how long the answer will be; what is reserved for it is half as much again.
func (v *visit) expected() int64 { return v.query.OutputTokens * 2 / 3 }

// wait puts a visit in the queue, or refuses it or somebody else when the queue is full.
func (f *floor) wait(v *visit, p *pool, now time.Time) (*attempt, *openai.Error, bool) {
	if v.ready == nil && v.told == nil {
		v.ready = make(chan verdict, 1)
	}
	f.line(v, p, now)
	r := p.queue.Push(&v.item, now, f.rng, func(it *queueItem) {
		it.Value.tell(verdict{refusal: f.noRoom(it.Value, p, now)})
	})
	switch {
	case r == queue.Late && !v.deadline.IsZero():
		return nil, openai.DeadlineUnmeetable("local"), false
	case r != queue.Accepted:
		return nil, f.noRoom(v, p, now), false
	}
	f.serve(p, now)
	if p.queue.Len() == 1 {
		f.changed() // the first one to wait may need a model that is not loaded
	}
	return nil, nil, true
}

// noRoom refuses a visit for as long as the queue takes to work half of what stands before it off.
func (f *floor) noRoom(v *visit, p *pool, now time.Time) *openai.Error {
	return openai.NoCapacity(v.model, p.queue.RetryAfter(v.flow(), v.class, now))
}

// try places a waiting visit if a worker has room.
func (f *floor) try(v *visit, p *pool, now time.Time) (*attempt, queue.Answer) {
	if p.yields(v) {
		return nil, queue.Held
	}
	v.query.Contended = p.queue.Len() > 1 && p.queue.Standing(v.flow(), v.class) != queue.Under
	at := f.place(v, p, now)
	switch {
	case at != nil:
		p.passed(v)
		return at, queue.Placed
	case v.query.Guest:
		return nil, queue.Beyond
	case v.query.Spare && p.queue.Rivals(v.flow(), v.class):
		return nil, queue.Held // it has its share: nobody waits for it
	case pick.HeldBack(p.view):
		p.held(v)
		return nil, queue.Held
	}
	return nil, queue.NoRoom
}

// spent is what an attempt took of its worker, in seconds of GPU time.
func (at *attempt) spent(m *meter, res *relay.Result) float64 {
	uncached := max(at.visit.query.PromptTokens-at.choice.Cached, 1)
	u := m.usage()
	switch {
	case u.Stated:
		return cost(int64(max(u.Prompt-u.Cached, 1)), int64(u.Completion), at.pace)
	case res.Status/100 == 2 && (!at.first.IsZero() || res.ClientGone):
		return cost(uncached, m.stream.Events, at.pace)
	case res.ClientGone && !res.NotStarted:
		return cost(uncached, 0, at.pace) // who asks and leaves has used the prefill all the same
	}
	return 0
}

// cost is what an attempt is expected to take of its worker.
func (at *attempt) cost() float64 {
	return cost(max(at.visit.query.PromptTokens-at.choice.Cached, 1), at.visit.expected(), at.pace)
}
