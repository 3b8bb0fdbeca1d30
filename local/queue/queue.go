package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Queue holds one model's waiting requests and its tenants' accounts.
type Queue[T any] struct {
	cfg   Config
	lines [spec.NumClasses]line[T]
	n     int
	bytes int64
	seq   uint64
	drain drain
	stuck *Item[T] // overtaken often enough: nobody passes it any more
}

// New returns an empty queue.
func New[T any](cfg Config) *Queue[T] {
	q := &Queue[T]{cfg: cfg.withDefaults()}
	for c := range q.lines {
		q.lines[c].lanes = map[string]*lane[T]{}
		q.lines[c].others = lane[T]{tenant: "(others)", at: -1}
	}
	return q
}

// Configure changes bounds and weights. What waits stays, also beyond a bound that has become smaller.
func (q *Queue[T]) Configure(cfg Config) { q.cfg = cfg.withDefaults() }

// Len is the number of waiting requests.
func (q *Queue[T]) Len() int { return q.n }

// Work is the waiting requests' prefill in tokens.
func (q *Queue[T]) Work() (sum int64) {
	for c := range q.lines {
		sum += q.lines[c].work
	}
	return sum
}

// Pass books a request that enters without waiting: nobody waits, and a worker has room.
func (q *Queue[T]) Pass(it *Item[T], now time.Time) {
	if it.state == waiting {
		return
	}
	q.forget(it)
	it.tidy()
	it.enqueued = now
	l := &q.lines[it.Class]
	l.ask(it.Tenant, now)
	ln := l.lane(it.Tenant, q.cfg.MaxTenants)
	l.weigh(ln, it.Weight)
	l.wakeUp(ln)
	if ln.at < 0 {
		l.lift(ln)
	}
	l.charge(ln, it.Cost)
	l.left = ln.counter
	l.count.passed++
	l.enter(it, ln)
}

// enter moves an item among those that run.
func (l *line[T]) enter(it *Item[T], ln *lane[T]) {
	it.lane, it.state = ln, running
	ln.running++
	l.running++
	it.booked = it.Cost
	ln.busy += it.booked
	l.busy += it.booked
}

// Settle books a request that entered out, at what it really cost in seconds of GPU time; 0 when it came to nothing.
// It is idempotent.
func (q *Queue[T]) Settle(it *Item[T], cost float64) {
	if it.state != running {
		return
	}
	l, ln := &q.lines[it.Class], it.lane
	if cost = min(finite(cost), maxCost); cost < 0 {
		cost = 0
	}
	l.charge(ln, cost-it.Cost)
	it.lane, it.state = nil, out
	ln.running--
	l.running--
	ln.busy -= it.booked
	l.busy -= it.booked
	if ln.running == 0 {
		ln.busy = 0 // what rounding has left
	}
	if l.running == 0 {
		l.busy = 0
	}
	l.rest(ln)
}

// forget settles an item that is used again while it still runs, at its estimate.
func (q *Queue[T]) forget(it *Item[T]) { q.Settle(it, it.Cost) }

// Remove takes a waiting item out: its client left, or it was refused. It is idempotent.
func (q *Queue[T]) Remove(it *Item[T], now time.Time) {
	if it == nil || it.state != waiting {
		return
	}
	l, ln := &q.lines[it.Class], it.lane
	q.cut(it, now)
	l.count.removed++
	l.rest(ln)
}

// add makes an item wait in its lane and its class.
func (q *Queue[T]) add(it *Item[T], ln *lane[T], now time.Time) {
	l := &q.lines[it.Class]
	if l.n == 0 {
		q.arrive(it.Class)
		l.drain.begin(now)
	}
	if q.n == 0 {
		q.drain.begin(now)
	}
	q.seq++
	it.seq, it.enqueued, it.skips, it.missed, it.tried, it.lane, it.state = q.seq, now, 0, false, false, ln, waiting
	l.wakeUp(ln)
	if ln.at < 0 {
		l.lift(ln)
		ln.joined = q.seq
		ln.items.push(it)
		l.begin(ln)
	} else {
		ln.items.push(it)
	}
	ln.work += it.Work
	ln.bytes += it.Bytes
	l.append(it)
	q.n++
	q.bytes += it.Bytes
}

// cut unlinks a waiting item.
func (q *Queue[T]) cut(it *Item[T], now time.Time) {
	l, ln := &q.lines[it.Class], it.lane
	ln.items.remove(it.at)
	l.regain(it)
	ln.work -= it.Work
	ln.bytes -= it.Bytes
	if len(ln.items) == 0 {
		l.end(ln)
	}
	l.unlink(it)
	if l.n == 0 {
		l.drain.end(now)
	}
	q.n--
	q.bytes -= it.Bytes
	if q.stuck == it {
		q.stuck = nil
	}
	it.lane, it.state = nil, out
	if q.n == 0 {
		q.drain.end(now)
	}
}

// Expire removes every request whose deadline has passed and hands it to drop.
func (q *Queue[T]) Expire(now time.Time, drop func(*Item[T])) {
	for c := range q.lines {
		for it := q.lines[c].oldest; it != nil; {
			next := it.newer
			if !it.Deadline.IsZero() && !now.Before(it.Deadline) {
				q.Remove(it, now)
				drop(it)
			}
			it = next
		}
	}
}
