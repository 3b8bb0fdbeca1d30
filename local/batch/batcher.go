// Package batch decides which small requests for one model become one upstream call. It merges their bodies and splits the
// answer: embeddings, and KServe v2 inferences whose first dimension is a batch. Main types: RequestPart (one request),
// Batcher (the waiting requests of a model), Call, PartAnswer.
//
// Two requests share a call only if their bodies are equal byte for byte outside the variable spans (inputs, a tensor's
// number of rows and its data, an id), so that no parameter of one applies to another. A body becomes a RequestPart only if
// its inputs can be counted reliably: a wrong count would give a client another client's results.
//
// While fewer calls are under way than the engine takes at a time, the oldest group goes at once. Otherwise requests gather
// until MaxSize, MaxBytes or MaxDelay is reached, or a call ends. Preferred sizes only round a call down and delay nothing.
// If an engine refuses calls of some size, smaller ones are sent, and larger ones are tried again later.
//
// SplitAnswer returns slices of the upstream answer without decoding or copying vectors. It requires exactly one result for
// each input, and otherwise fails; the caller then sends each part alone. Usage is divided by weight and adds up to what the
// engine reported. The package never does I/O, never waits or reads a clock, and never interprets an input.
package batch

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config bounds a Batcher. Zero fields take the defaults given.
type Config struct {
	// MaxSize bounds the items of one call. Default 64.
	MaxSize int
	// MaxBytes bounds the total size of the bodies of one call. Default 1 MiB.
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

// mergeGroup holds waiting items that can be merged, oldest first.
type mergeGroup[T any] struct {
	items []*Item[T]
	size  int
	bytes int64
}

// adjustClock compensates for a clock that was set back: waiting items do not wait for the difference as well.
func (g *mergeGroup[T]) adjustClock(now time.Time) {
	if !g.items[0].addedAt.After(now) {
		return
	}
	for _, it := range g.items {
		if it.addedAt.After(now) {
			it.addedAt = now
		}
	}
}

// maxGroups bounds the merge groups that wait at the same time; requests beyond it are sent alone.
const maxGroups = 64

// Batcher gathers one model's requests into calls. It has one owner and no lock.
type Batcher[T any] struct {
	cfg           Config
	concurrency   int // calls that the engine takes at a time
	callsInFlight int
	groups        []*mergeGroup[T]
	byBodyHash    map[uint64]*Item[T]
	heldCount     int
	heldBytes     int64
	sizeLimit     sizeLimit
}

// NewBatcher returns an empty batcher for an engine that takes one call at a time.
func NewBatcher[T any](cfg Config) *Batcher[T] {
	l := &Batcher[T]{concurrency: 1, byBodyHash: map[uint64]*Item[T]{}}
	l.SetConfig(cfg)
	return l
}

// SetConfig sets the bounds for items that are added from now on.
func (l *Batcher[T]) SetConfig(cfg Config) { l.cfg = cfg.withDefaults() }

// SetConcurrency sets how many calls the engine takes at a time before it counts as busy, at least one.
func (l *Batcher[T]) SetConcurrency(n int) { l.concurrency = max(n, 1) }

// IsEmpty reports whether no item waits or is in a call.
func (l *Batcher[T]) IsEmpty() bool { return l.heldCount == 0 }

// maxCallSize is how many items a call may have now.
func (l *Batcher[T]) maxCallSize() int { return l.sizeLimit.boundedBy(l.cfg.MaxSize) }

// FindIdentical returns an item, waiting or in a call, whose answer is also that of p; nil when there is none.
func (l *Batcher[T]) FindIdentical(p *RequestPart, tenant string, class spec.Class) *Item[T] {
	it := l.byBodyHash[p.bodyHash]
	if it == nil || it.Tenant != tenant || it.Class != class || !it.Part.IsIdenticalTo(p) {
		return nil
	}
	return it
}

// AddItem adds an item that waits for its call. It returns false if the request must be sent alone, because the item cannot be
// merged or the batcher is full.
func (l *Batcher[T]) AddItem(it *Item[T], now time.Time) bool {
	p := it.Part
	if p.Items > l.maxCallSize() || p.Bytes() > l.cfg.MaxBytes || l.heldCount >= l.cfg.MaxHeld || l.heldBytes+p.Bytes() > l.cfg.MaxHeldBytes {
		return false
	}
	g := l.groupFor(it)
	if g == nil {
		return false
	}
	g.items = append(g.items, it)
	g.size += p.Items
	g.bytes += p.Bytes()
	it.mergeGroup, it.addedAt = g, now
	l.heldCount++
	l.heldBytes += p.Bytes()
	if p.kind == kindEmbeddings && l.byBodyHash[p.bodyHash] == nil {
		l.byBodyHash[p.bodyHash] = it
	}
	return true
}

func (l *Batcher[T]) groupFor(it *Item[T]) *mergeGroup[T] {
	for _, g := range l.groups {
		if o := g.items[0]; o.Tenant == it.Tenant && o.Class == it.Class && o.Part.CanMergeWith(it.Part) {
			return g
		}
	}
	if len(l.groups) >= maxGroups {
		return nil
	}
	g := &mergeGroup[T]{}
	l.groups = append(l.groups, g)
	return g
}

// RemoveItem removes an item that still waits. An item in a call stays until FinishCall.
func (l *Batcher[T]) RemoveItem(it *Item[T]) {
	g := it.mergeGroup
	if g == nil {
		return
	}
	i := slices.Index(g.items, it)
	g.items = slices.Delete(g.items, i, i+1)
	l.leaveGroup(g, it)
	l.forgetItem(it)
	l.dropIfEmpty(g)
}

// leaveGroup removes an item from the counts of its group.
func (l *Batcher[T]) leaveGroup(g *mergeGroup[T], it *Item[T]) {
	g.size -= it.Part.Items
	g.bytes -= it.Part.Bytes()
	it.mergeGroup = nil
}

// forgetItem removes an item from the counts and the index of the batcher.
func (l *Batcher[T]) forgetItem(it *Item[T]) {
	l.heldCount--
	l.heldBytes -= it.Part.Bytes()
	if l.byBodyHash[it.Part.bodyHash] == it {
		delete(l.byBodyHash, it.Part.bodyHash)
	}
}

// dropIfEmpty removes a group that is empty.
func (l *Batcher[T]) dropIfEmpty(g *mergeGroup[T]) {
	if len(g.items) == 0 {
		i := slices.Index(l.groups, g)
		l.groups = slices.Delete(l.groups, i, i+1)
	}
}

// NextCall returns a call that is to be made now; nil when there is none before NextDue.
func (l *Batcher[T]) NextCall(now time.Time) *Call[T] {
	var best *mergeGroup[T]
	why := CallIdle
	for _, g := range l.groups {
		r := CallIdle
		g.adjustClock(now)
		switch {
		case g.size >= l.maxCallSize() || g.bytes >= l.cfg.MaxBytes:
			r = CallFull
		case !now.Before(g.items[0].addedAt.Add(l.cfg.MaxDelay)):
			r = CallDue
		case l.callsInFlight >= l.concurrency:
			continue
		}
		if best == nil || r < why || r == why && g.items[0].addedAt.Before(best.items[0].addedAt) {
			best, why = g, r
		}
	}
	if best == nil {
		return nil
	}
	return l.cutCall(best, why)
}

// NextDue is when NextCall must be called again if nothing else happens before; zero when no item waits.
func (l *Batcher[T]) NextDue() time.Time {
	var at time.Time
	for _, g := range l.groups {
		if due := g.items[0].addedAt.Add(l.cfg.MaxDelay); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}

// cutCall takes a call's items from the front of a group.
func (l *Batcher[T]) cutCall(g *mergeGroup[T], why CallReason) *Call[T] {
	c := &Call[T]{Reason: why}
	n, bytes := 0, int64(0)
	preferred, preferredSize := 0, 0
	for _, it := range g.items {
		if n > 0 && (c.Size+it.Part.Items > l.maxCallSize() || bytes+it.Part.Bytes() > l.cfg.MaxBytes) {
			preferred = 0 // the next item does not fit: this call is full
			break
		}
		n++
		c.Size += it.Part.Items
		bytes += it.Part.Bytes()
		if slices.Contains(l.cfg.Preferred, c.Size) {
			preferred, preferredSize = n, c.Size
		}
	}
	if preferred > 0 && c.Size < l.maxCallSize() {
		n, c.Size = preferred, preferredSize
	}
	c.Items = slices.Clone(g.items[:n])
	g.items = slices.Delete(g.items, 0, n)
	for _, it := range c.Items {
		l.leaveGroup(g, it)
	}
	l.dropIfEmpty(g)
	l.callsInFlight++
	return c
}

// AbandonCall hides the items of a cancelled call from FindIdentical: they have no answer to share. FinishCall must still be
// called.
func (l *Batcher[T]) AbandonCall(c *Call[T]) {
	for _, it := range c.Items {
		if l.byBodyHash[it.Part.bodyHash] == it {
			delete(l.byBodyHash, it.Part.bodyHash)
		}
	}
}

// FinishCall ends a call. refused means that the engine refused the whole call, but none of its parts when sent alone.
func (l *Batcher[T]) FinishCall(c *Call[T], refused bool) {
	l.callsInFlight--
	for _, it := range c.Items {
		l.forgetItem(it)
	}
	l.sizeLimit.recordCall(c.Size, len(c.Items) > 1 && refused, l.cfg.MaxSize)
}
