package local

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine/kvevents"
	"github.com/spillway-lb/spillway/local/pick"
)

const (
	// lostFor is how long a stream of cache events may be lost before what it told becomes a guess.
	lostFor = 5 * time.Second
	// heldAtOnce bounds the blocks that are booked under one hold of the floor's lock.
	heldAtOnce = 512
)

// feed is what is heard of one worker's cache events. The floor's lock guards it.
type feed struct {
	streams []streamState
	exact   bool
	why     string // it is not exact
	counts  [feedCounts]float64
	heard   time.Time
}

// streamState is one data-parallel rank's.
type streamState struct {
	live bool
	lost time.Time
}

// What is counted of a feed.
const (
	countStored = iota
	countRemoved
	countCleared
	countIgnored
	countGap
	countRestart
	countGarbled
	countLost
	feedCounts
)

// listen follows a worker's cache events until ctx ends.
func (a *Agent) listen(ctx context.Context, w *worker) {
	d := &net.Dialer{
		Timeout: 5 * time.Second, Control: permitted,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	dial := d.DialContext
	if a.cfg.Network != nil {
		dial = a.cfg.Network.DialContext
	}
	log := a.log.With(telemetry.KeyWorker, w.declared.Name)
	for rank, address := range w.declared.KVEvents {
		cfg := kvevents.Config{Events: address, Dial: dial, Log: log}
		if len(w.declared.KVReplay) > rank {
			cfg.Replay = w.declared.KVReplay[rank]
		}
		a.wg.Go(func() { kvevents.Follow(ctx, cfg, &ear{floor: a.floor, worker: w, rank: rank, group: anyGroup}) })
	}
}

// anyGroup says that no cache group has been chosen yet.
const anyGroup = -2

// ear takes one stream's news to the floor.
type ear struct {
	floor  *floor
	worker *worker
	rank   int
	group  int // of engines with several caches the first that keeps whole prefixes is followed
}

// Batch books one batch, a piece at a time, so that requests are not held up by a long one.
func (e *ear) Batch(b *kvevents.Batch) {
	e.count(countIgnored, b.Ignored)
	for i := range b.Events {
		ev := b.Events[i]
		if ev.Kind != kvevents.Cleared {
			if e.group == anyGroup && ev.Kind == kvevents.Stored {
				e.group = ev.Group
			}
			if e.group != ev.Group {
				e.count(countIgnored, 1)
				continue
			}
		}
		for first := true; first || len(ev.Hashes) > 0; first = false {
			rest := ev.Hashes
			ev.Hashes = rest[:min(len(rest), heldAtOnce)]
			e.book(&ev, first)
			if rest = rest[len(ev.Hashes):]; len(rest) > 0 {
				ev.Parent, ev.HasParent = ev.Hashes[len(ev.Hashes)-1], true
			}
			ev.Hashes = rest
		}
	}
}

// book books a piece of one event.
func (e *ear) book(ev *kvevents.Event, first bool) {
	f, w := e.floor, e.worker
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.gone {
		return
	}
	now := time.Now()
	w.feed.heard = now
	f.trustFeed(w)
	kind := countStored
	switch ev.Kind {
	case kvevents.Stored:
		s := pick.Stored{Rank: e.rank, Hashes: ev.Hashes, Parent: ev.Parent, HasParent: ev.HasParent, BlockTokens: ev.BlockTokens}
		f.index.Store(w.id, &s, now)
	case kvevents.Removed:
		kind = countRemoved
		f.index.Remove(w.id, e.rank, ev.Hashes, now)
	case kvevents.Cleared:
		kind = countCleared
		f.clearCache(w, e.rank, now)
	}
	if first {
		w.feed.counts[kind]++
	}
}

// State notes that the stream is in order, or lost.
func (e *ear) State(s kvevents.State) {
	e.change(func(f *floor, w *worker) {
		st := &w.feed.streams[e.rank]
		st.live = s == kvevents.Live
		if !st.live {
			st.lost = time.Now()
			w.feed.counts[countLost]++
			return
		}
		f.trustFeed(w)
	})
}

// Gap makes guesses of what is known: nobody knows what the missing events would have changed.
func (e *ear) Gap() {
	e.change(func(f *floor, w *worker) {
		w.feed.counts[countGap]++
		if f.index.Exact(w.id) {
			f.index.Doubt(w.id)
			f.index.Follow(w.id)
		}
	})
}

// Restart empties what is believed of the worker's cache.
func (e *ear) Restart() {
	e.change(func(f *floor, w *worker) {
		w.feed.counts[countRestart]++
		f.clearCache(w, e.rank, time.Now())
	})
}

// clearCache books that one rank's cache is empty. What is on its way to the worker will be cached nevertheless.
func (f *floor) clearCache(w *worker, rank int, now time.Time) {
	f.index.Clear(w.id, rank, now)
	for at := range w.attempts {
		if at.first.IsZero() && !at.hedge {
			f.index.Insert(w.id, at.visit.query.Blocks)
		}
	}
}

// Garbled counts what could not be read.
func (e *ear) Garbled() { e.count(countGarbled, 1) }

func (e *ear) count(what, n int) {
	if n > 0 {
		e.change(func(_ *floor, w *worker) { w.feed.counts[what] += float64(n) })
	}
}

func (e *ear) change(do func(*floor, *worker)) {
	e.floor.mu.Lock()
	defer e.floor.mu.Unlock()
	if !e.worker.gone {
		do(e.floor, e.worker)
	}
}

// trustFeed goes to exact mode once every rank of the worker is heard.
func (f *floor) trustFeed(w *worker) {
	if w.feed.exact {
		return
	}
	for i := range w.feed.streams {
		if !w.feed.streams[i].live && len(w.feed.streams) > 1 {
			w.feed.why = fmt.Sprintf("rank %d is not heard", i)
			return
		}
	}
	w.feed.exact, w.feed.why = true, ""
	f.index.Follow(w.id)
}

// doubtFeed goes back to guessing.
func (f *floor) doubtFeed(w *worker, why string) {
	w.feed.exact, w.feed.why = false, why
	f.index.Doubt(w.id)
}

// tend settles what waits for a worker's events, and doubts a stream that is lost or silent.
func (f *floor) tend(w *worker, now time.Time) {
	if !w.feed.exact {
		return
	}
	for i := range w.feed.streams {
		if s := &w.feed.streams[i]; !s.live && !s.lost.IsZero() && now.Sub(s.lost) > lostFor {
			f.doubtFeed(w, "events are lost")
			return
		}
	}
	if f.index.Settle(w.id, now) {
		f.doubtFeed(w, "events are silent")
	}
}

// claim tells the index what an answer says of its prompt, and judges what was predicted of it.
func (f *floor) claim(at *attempt, u openai.Usage, now time.Time) {
	w, q := at.worker, &at.visit.query
	if u.Prompt <= 0 || q.Longest > 0 {
		return
	}
	cached := int64(-1)
	if w.cachedOK {
		cached = int64(u.Cached)
		f.hits[at.exact].judge(float64(at.choice.Known), float64(cached), float64(u.Prompt))
	}
	f.index.Claim(w.id, &pick.Claim{
		Blocks: q.Blocks, Bytes: q.PromptBytes, Prompt: int64(u.Prompt), Cached: cached, Output: int64(u.Completion), Sent: at.sent, First: at.first,
	}, now)
}

// hitScore compares what was believed to be cached with what engines said was, in tokens.
type hitScore struct{ over, under, prompt float64 }

func (s *hitScore) judge(believed, cached, prompt float64) {
	s.over += max(0, believed-cached)
	s.under += max(0, cached-believed)
	s.prompt += prompt
}

// modes of the prefix index, by whether it is exact.
func mode(exact int) string { return [...]string{"approximate", "exact"}[exact] }

func (w *worker) modeIndex() int {
	if w.feed.exact {
		return 1
	}
	return 0
}

// prefixStatus is the word for status; empty for workers whose events nobody asked for.
func (w *worker) prefixStatus() string {
	switch {
	case len(w.feed.streams) == 0:
		return ""
	case w.feed.exact:
		return "exact"
	case w.feed.why == "":
		return "approximate: no events yet"
	}
	return "approximate: " + w.feed.why
}
