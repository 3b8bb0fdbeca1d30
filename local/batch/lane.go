package batch

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config bounds a Lane. Zero fields take the defaults given.
type Config struct {
	// MaxSize bounds the items of one call. Default 64.
	MaxSize int
	// MaxBytes bounds the bodies of one call together. Default 1 MiB.
	MaxBytes int64
	// MaxDelay bounds how long a request waits for others while the engine is busy. Default 5ms.
	MaxDelay time.Duration
	// Preferred sizes, ascending: a call that is not full is rounded down to one of them.
	Preferred []int
	// MaxHeld and MaxHeldBytes bound the requests that wait or are in a call. Defaults 8192 and 64 MiB.
	MaxHeld      int
	MaxHeldBytes int64
}

func (c Config) withDefaults() Config {
	c.MaxSize = cmp.Or(max(c.MaxSize, 0), 64)
	c.MaxBytes = cmp.Or(max(c.MaxBytes, 0), 1<<20)
	c.MaxDelay = cmp.Or(max(c.MaxDelay, 0), 5*time.Millisecond)
	c.MaxHeld = cmp.Or(max(c.MaxHeld, 0), 8192)
	c.MaxHeldBytes = cmp.Or(max(c.MaxHeldBytes, 0), 64<<20)
	return c
}

// group holds waiting items that fit one another, oldest first.
type group[T any] struct {
	items []*Item[T]
	size  int
	bytes int64
}

// see notices a clock that was set back: who waits is not made to wait for the difference as well.
func (g *group[T]) see(now time.Time) {
	if !g.items[0].added.After(now) {
		return
	}
	for _, it := range g.items {
		if it.added.After(now) {
			it.added = now
		}
	}
}

// maxGroups bounds how many kinds of request wait side by side; others go alone.
const maxGroups = 64

// Lane gathers one model's requests into calls. It has one owner and no lock.
type Lane[T any] struct {
	cfg    Config
	width  int // calls that the engine takes at a time
	flying int
	groups []*group[T]
	twins  map[uint64]*Item[T]
	held   int
	bytes  int64
	limit  limit
}

// NewLane returns an empty lane for an engine that takes one call at a time.
func NewLane[T any](cfg Config) *Lane[T] {
	l := &Lane[T]{width: 1, twins: map[uint64]*Item[T]{}}
	l.Configure(cfg)
	return l
}

// Configure puts other bounds in force for what is added from now on.
func (l *Lane[T]) Configure(cfg Config) { l.cfg = cfg.withDefaults() }

// SetWidth says how many calls the engine takes at a time before it counts as busy, at least one.
func (l *Lane[T]) SetWidth(n int) { l.width = max(n, 1) }

// Empty says that nothing waits and nothing is in a call.
func (l *Lane[T]) Empty() bool { return l.held == 0 }

// size is how many items a call may have now.
func (l *Lane[T]) size() int { return l.limit.of(l.cfg.MaxSize) }

// Twin finds an item, waiting or in a call, whose answer is the one that p asks for too; nil when there is none.
func (l *Lane[T]) Twin(p *Part, tenant string, class spec.Class) *Item[T] {
	it := l.twins[p.sum]
	if it == nil || it.Tenant != tenant || it.Class != class || !it.Part.Same(p) {
		return nil
	}
	return it
}

// Add lets an item wait for its call. False: it does not belong in one, or the lane holds as much as it may, and the
// request must go alone.
func (l *Lane[T]) Add(it *Item[T], now time.Time) bool {
	p := it.Part
	if p.Items > l.size() || p.Bytes() > l.cfg.MaxBytes || l.held >= l.cfg.MaxHeld || l.bytes+p.Bytes() > l.cfg.MaxHeldBytes {
		return false
	}
	g := l.groupOf(it)
	if g == nil {
		return false
	}
	g.items = append(g.items, it)
	g.size += p.Items
	g.bytes += p.Bytes()
	it.group, it.added = g, now
	l.held++
	l.bytes += p.Bytes()
	if p.kind == embeddings && l.twins[p.sum] == nil {
		l.twins[p.sum] = it
	}
	return true
}

func (l *Lane[T]) groupOf(it *Item[T]) *group[T] {
	for _, g := range l.groups {
		if o := g.items[0]; o.Tenant == it.Tenant && o.Class == it.Class && o.Part.Fits(it.Part) {
			return g
		}
	}
	if len(l.groups) >= maxGroups {
		return nil
	}
	g := &group[T]{}
	l.groups = append(l.groups, g)
	return g
}

// Remove takes out an item that still waits; one that is in a call stays until Done.
func (l *Lane[T]) Remove(it *Item[T]) {
	g := it.group
	if g == nil {
		return
	}
	i := slices.Index(g.items, it)
	g.items = slices.Delete(g.items, i, i+1)
	l.leave(g, it)
	l.forget(it)
	l.sweep(g)
}

// leave books an item out of its group.
func (l *Lane[T]) leave(g *group[T], it *Item[T]) {
	g.size -= it.Part.Items
	g.bytes -= it.Part.Bytes()
	it.group = nil
}

// forget books an item out of the lane.
func (l *Lane[T]) forget(it *Item[T]) {
	l.held--
	l.bytes -= it.Part.Bytes()
	if l.twins[it.Part.sum] == it {
		delete(l.twins, it.Part.sum)
	}
}

// sweep drops a group that is empty.
func (l *Lane[T]) sweep(g *group[T]) {
	if len(g.items) == 0 {
		i := slices.Index(l.groups, g)
		l.groups = slices.Delete(l.groups, i, i+1)
	}
}

// Next returns a call that is to be made now; nil when there is none before Wake.
func (l *Lane[T]) Next(now time.Time) *Call[T] {
	var best *group[T]
	why := Idle
	for _, g := range l.groups {
		r := Idle
		g.see(now)
		switch {
		case g.size >= l.size() || g.bytes >= l.cfg.MaxBytes:
			r = Full
		case !now.Before(g.items[0].added.Add(l.cfg.MaxDelay)):
			r = Due
		case l.flying >= l.width:
			continue
		}
		if best == nil || r < why || r == why && g.items[0].added.Before(best.items[0].added) {
			best, why = g, r
		}
	}
	if best == nil {
		return nil
	}
	return l.cut(best, why)
}

// Wake is when Next must be asked again if nothing else happens before; zero when nobody waits.
func (l *Lane[T]) Wake() time.Time {
	var at time.Time
	for _, g := range l.groups {
		if due := g.items[0].added.Add(l.cfg.MaxDelay); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}

// cut takes a call's items off the front of a group.
func (l *Lane[T]) cut(g *group[T], why Reason) *Call[T] {
	c := &Call[T]{Reason: why}
	n, bytes := 0, int64(0)
	preferred, preferredSize := 0, 0
	for _, it := range g.items {
		if n > 0 && (c.Size+it.Part.Items > l.size() || bytes+it.Part.Bytes() > l.cfg.MaxBytes) {
			preferred = 0 // what comes next does not fit: this is full
			break
		}
		n++
		c.Size += it.Part.Items
		bytes += it.Part.Bytes()
		if slices.Contains(l.cfg.Preferred, c.Size) {
			preferred, preferredSize = n, c.Size
		}
	}
	if preferred > 0 && c.Size < l.size() {
		n, c.Size = preferred, preferredSize
	}
	c.Items = slices.Clone(g.items[:n])
	g.items = slices.Delete(g.items, 0, n)
	for _, it := range c.Items {
		l.leave(g, it)
	}
	l.sweep(g)
	l.flying++
	return c
}

// Abandon takes the items of a call that was cancelled out of what Twin finds: they will have no answer to share. Done is still
// to be called.
func (l *Lane[T]) Abandon(c *Call[T]) {
	for _, it := range c.Items {
		if l.twins[it.Part.sum] == it {
			delete(l.twins, it.Part.sum)
		}
	}
}

// Done ends a call. Refused says that the engine refused it whole, though none of its parts when it came alone.
func (l *Lane[T]) Done(c *Call[T], refused bool) {
	l.flying--
	for _, it := range c.Items {
		l.forget(it)
	}
	l.limit.learn(c.Size, len(c.Items) > 1 && refused, l.cfg.MaxSize)
}
