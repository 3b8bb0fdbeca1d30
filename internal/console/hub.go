package console

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// feedUpdate is one reading of a feed.
type feedUpdate struct {
	feed    string
	payload []byte // JSON; nil if the reading failed
	failure string
}

// streamHub reads the feeds that some viewer shows, once for all viewers. Without viewers it reads nothing.
type streamHub struct {
	mu      sync.Mutex
	pollers map[string]*feedPoller
	viewers map[*streamViewer]struct{}
	closed  bool
	done    chan struct{} // closed by close
	wg      sync.WaitGroup
}

// feedPoller is the state of one feed. The hub's mutex guards it.
type feedPoller struct {
	feed    Feed
	viewers int
	stop    context.CancelFunc // nil: it is not being read
	run     uint64             // counts the starts, so that a stopped reader cannot publish into the next run
	last    feedUpdate         // the newest reading of this run
	readAt  time.Time          // of the last successful reading; zero: none in this run
}

// streamViewer is one open stream.
type streamViewer struct {
	feeds   []string
	wake    chan struct{}         // has one place: there are pending updates
	pending map[string]feedUpdate // the newest undelivered update of each feed; the hub's mutex guards it
}

func newStreamHub(feeds []Feed) *streamHub {
	h := &streamHub{pollers: map[string]*feedPoller{}, viewers: map[*streamViewer]struct{}{}, done: make(chan struct{})}
	for _, f := range feeds {
		h.pollers[f.Name] = &feedPoller{feed: f}
	}
	return h
}

// addViewer adds a viewer of some feeds; unknown names are ignored. ok is false when there are too many, or after close.
func (h *streamHub) addViewer(names []string) (v *streamViewer, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= maxViewers {
		return nil, false
	}
	v = &streamViewer{wake: make(chan struct{}, 1), pending: map[string]feedUpdate{}}
	h.viewers[v] = struct{}{}
	seen := map[string]bool{}
	for _, name := range names {
		p := h.pollers[name]
		if p == nil || seen[name] {
			continue
		}
		seen[name] = true
		v.feeds = append(v.feeds, name)
		if p.viewers++; p.viewers == 1 {
			h.startPoller(p)
		} else if p.last.feed != "" {
			v.pending[name] = p.last
			v.notify()
		}
	}
	return v, true
}

func (h *streamHub) removeViewer(v *streamViewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	for _, name := range v.feeds {
		p := h.pollers[name]
		if p.viewers--; p.viewers == 0 {
			p.stop()
			p.stop, p.last, p.readAt = nil, feedUpdate{}, time.Time{}
		}
	}
}

func (h *streamHub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.done)
		for _, p := range h.pollers {
			if p.stop != nil {
				p.stop()
			}
		}
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// startPoller starts to read a feed. The caller holds the mutex.
func (h *streamHub) startPoller(p *feedPoller) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.run++
	run := p.run
	h.wg.Go(func() { h.pollFeed(ctx, p, run) })
}

func (h *streamHub) pollFeed(ctx context.Context, p *feedPoller, run uint64) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		u := readFeed(ctx, &p.feed)
		h.publishUpdate(p, run, u)
		timer.Reset(max(chooseInterval(p.feed.Interval, len(u.payload))-time.Since(began), p.feed.Interval/2))
	}
}

// chooseInterval returns the time between two readings of a feed whose answer has a size, in bytes.
func chooseInterval(shortest time.Duration, size int) time.Duration {
	return max(shortest, time.Duration(float64(size)/maxBytesPerSecond*float64(time.Second)))
}

func readFeed(ctx context.Context, f *Feed) feedUpdate {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	out, err := f.Read(ctx)
	if err != nil {
		return feedUpdate{feed: f.Name, failure: err.Error()}
	}
	payload, err := json.Marshal(out)
	if err != nil {
		return feedUpdate{feed: f.Name, failure: err.Error()}
	}
	return feedUpdate{feed: f.Name, payload: payload}
}

// publishUpdate hands an update to the viewers of its feed, unless they have the same answer already.
func (h *streamHub) publishUpdate(p *feedPoller, run uint64, u feedUpdate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.run != run || p.stop == nil {
		return
	}
	if u.failure == "" {
		p.readAt = time.Now()
	}
	if p.last.feed != "" && p.last.failure == u.failure && bytes.Equal(p.last.payload, u.payload) {
		return
	}
	p.last = u
	for v := range h.viewers {
		for _, name := range v.feeds {
			if name == u.feed {
				v.pending[name] = u
				v.notify()
			}
		}
	}
}

func (v *streamViewer) notify() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// takePending returns the undelivered updates in the order of the viewer's feeds.
func (h *streamHub) takePending(v *streamViewer) (out []feedUpdate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range v.feeds {
		if u, ok := v.pending[name]; ok {
			out = append(out, u)
		}
	}
	clear(v.pending)
	return out
}

// readAges returns the time since each feed of a viewer was last read, in milliseconds; -1: not yet.
func (h *streamHub) readAges(v *streamViewer, now time.Time) map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int64{}
	for _, name := range v.feeds {
		out[name] = -1
		if at := h.pollers[name].readAt; !at.IsZero() {
			out[name] = now.Sub(at).Milliseconds()
		}
	}
	return out
}
