package queue

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config bounds and weighs a Queue. Zero fields take the defaults given.
type Config struct {
	// MaxItems bounds the waiting requests. Default 1024.
	MaxItems int
	// MaxWork bounds their prefill tokens. Default 4,194,304.
	MaxWork int64
	// Weights are the classes' shares while all of them wait. Default 16, 4, 1.
	Weights [spec.NumClasses]float64
	// Aging is the wait after which a class's weight has doubled, and trebled after twice it, so that nothing starves.
	// Default 2s.
	Aging time.Duration
	// MaxSkips is how often a request that finds no room may be overtaken before everybody waits for it. Default 32.
	MaxSkips int
	// Reach is how many requests Next tries before it gives up. Default 8.
	Reach int
}

func (c Config) withDefaults() Config {
	if c.MaxItems <= 0 {
		c.MaxItems = 1024
	}
	if c.MaxWork <= 0 {
		c.MaxWork = 4 << 20
	}
	if c.Weights == ([spec.NumClasses]float64{}) {
		c.Weights = [spec.NumClasses]float64{16, 4, 1}
	}
	if c.Aging <= 0 {
		c.Aging = 2 * time.Second
	}
	if c.MaxSkips <= 0 {
		c.MaxSkips = 32
	}
	if c.Reach <= 0 {
		c.Reach = 8
	}
	return c
}

// Queue holds one model's waiting requests.
type Queue[T any] struct {
	cfg   Config
	lines [spec.NumClasses]line[T]
	n     int
	work  int64
	drain drain
	stuck *Item[T] // overtaken often enough: nobody passes it any more
}

// New returns an empty queue.
func New[T any](cfg Config) *Queue[T] {
	q := &Queue[T]{cfg: cfg.withDefaults()}
	for c := range q.lines {
		q.lines[c].lanes = map[string]*lane[T]{}
	}
	return q
}

// Len is the number of waiting requests; Work is their prefill tokens.
func (q *Queue[T]) Len() int { return q.n }

// Work is the waiting requests' prefill tokens.
func (q *Queue[T]) Work() int64 { return q.work }

// Ahead is the work in prefill tokens that would be served before a new request of class c: all of its own class and
// of more urgent ones, and of the less urgent the part that their weights earn in the meantime.
func (q *Queue[T]) Ahead(c spec.Class) int64 {
	c = clamp(c)
	var sum float64
	for o := range q.lines {
		w := float64(q.lines[o].work)
		if spec.Class(o) > c {
			own := float64(q.lines[c].work)
			w = min(w, own*q.cfg.Weights[o]/q.cfg.Weights[c])
		}
		sum += w
	}
	return int64(sum)
}

// Push makes an item wait. When that would break the queue's bound, somebody is refused: the newest of the least
// urgent class if it is less urgent than the new item, otherwise the new item itself. ok is false when the new item
// does not wait; victims, removed from the queue, are handed to shed, which may be nil.
func (q *Queue[T]) Push(it *Item[T], now time.Time, shed func(*Item[T])) (ok bool) {
	if it.lane != nil {
		return true
	}
	it.Class, it.Work = clamp(it.Class), max(it.Work, 1)
	if it.Work > q.cfg.MaxWork || !q.fitsAfterShedding(it) {
		return false
	}
	for q.n >= q.cfg.MaxItems || q.work+it.Work > q.cfg.MaxWork {
		v := q.victim(it.Class)
		q.Remove(v)
		if shed != nil {
			shed(v)
		}
	}
	it.enqueued, it.skips = now, 0
	q.add(it)
	return true
}

// fitsAfterShedding says whether refusing everything less urgent would make room, before anybody is refused.
func (q *Queue[T]) fitsAfterShedding(it *Item[T]) bool {
	n, work := q.n, q.work
	for c := it.Class + 1; c < spec.NumClasses; c++ {
		n -= q.lines[c].n
		work -= q.lines[c].work
	}
	return n < q.cfg.MaxItems && work+it.Work <= q.cfg.MaxWork
}

func (q *Queue[T]) victim(c spec.Class) *Item[T] {
	for o := spec.NumClasses - 1; o > int(c); o-- {
		if v := q.lines[o].newest; v != nil {
			return v
		}
	}
	return nil
}

// Remove takes an item out: its client left, or it was refused. It is idempotent.
func (q *Queue[T]) Remove(it *Item[T]) {
	if it == nil || it.lane == nil {
		return
	}
	q.cut(it)
}

// Next tries the waiting requests in the order they are due, at most Reach of them, until try takes one; that one has
// left the queue when Next returns it. A request that finds no room may be overtaken MaxSkips times, and is then
// waited for. nil means that nothing could be placed now.
func (q *Queue[T]) Next(now time.Time, try func(*Item[T]) bool) *Item[T] {
	if q.n == 0 {
		return nil
	}
	if s := q.stuck; s != nil {
		if !try(s) {
			return nil
		}
		return q.take(s, now)
	}
	var passed [16]*Item[T]
	n := 0
	var got *Item[T]
	q.each(now, func(it *Item[T]) bool {
		if try(it) {
			got = it
			return false
		}
		if n < len(passed) {
			passed[n] = it
			n++
		}
		return n < min(q.cfg.Reach, len(passed))
	})
	if got == nil {
		return nil
	}
	for _, it := range passed[:n] {
		if it.skips++; it.skips >= q.cfg.MaxSkips && q.stuck == nil {
			q.stuck = it
		}
	}
	return q.take(got, now)
}

func (q *Queue[T]) take(it *Item[T], now time.Time) *Item[T] {
	l := &q.lines[it.Class]
	q.charge(it.Class, it.Work, now)
	l.turn = it.lane.next
	q.cut(it)
	q.drain.count(it.Work, now)
	return it
}

// Expire removes every request whose deadline has passed and hands it to drop.
func (q *Queue[T]) Expire(now time.Time, drop func(*Item[T])) {
	for c := range q.lines {
		for it := q.lines[c].oldest; it != nil; {
			next := it.newer
			if !it.Deadline.IsZero() && !now.Before(it.Deadline) {
				q.Remove(it)
				drop(it)
			}
			it = next
		}
	}
}

// Wait predicts how long a new request of class c would wait, from the rate at which the queue has been draining.
// ok is false when nothing has drained yet.
func (q *Queue[T]) Wait(c spec.Class, now time.Time) (wait time.Duration, ok bool) {
	rate := q.drain.perSecond(now)
	if rate <= 0 {
		return 0, false
	}
	return seconds(float64(q.Ahead(c)) / rate), true
}

// RetryAfter is when a refused request of class c might find room: the time to drain half of what stands before it,
// between 1 s and 120 s.
func (q *Queue[T]) RetryAfter(c spec.Class, now time.Time) time.Duration {
	w, ok := q.Wait(c, now)
	if !ok {
		w = 10 * time.Second
	}
	return max(time.Second, min((w/2).Round(time.Second), 120*time.Second))
}

func seconds(s float64) time.Duration {
	if s > float64(math.MaxInt64)/2e9 {
		return time.Duration(math.MaxInt64 / 2)
	}
	return time.Duration(s * float64(time.Second))
}

func clamp(c spec.Class) spec.Class {
	if c >= spec.NumClasses {
		return spec.Batch
	}
	return c
}
