package global

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// ingest is the newest statement of every gateway. Uplink sessions write to it; the keeper reads it.
type ingest struct {
	mu    sync.Mutex
	book  *capacity.Book
	last  map[capacity.Path]mark
	count atomic.Uint64
	wake  func() // called when something changed that cannot wait for the next tick
}

// mark is what makes the next statement of a gateway news.
type mark struct{ draining, serves, lost bool }

func newIngest(wake func()) *ingest {
	return &ingest{book: capacity.NewBook(capacity.Thresholds{}), last: map[capacity.Path]mark{}, wake: wake}
}

// summary takes a statement. A gateway that was unknown or lost, that drains, or whose workers came or went, is news.
func (i *ingest) summary(_ identity.ID, s *capacity.Summary) {
	i.count.Add(1)
	if i.put(s, mark{draining: s.Draining, serves: serves(s)}) {
		i.wake()
	}
}

func (i *ingest) put(s *capacity.Summary, is mark) (news bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.book.Put(s, time.Now()) {
		return false
	}
	was, known := i.last[s.Path]
	if len(i.last) >= capacity.MaxChildren && !known {
		clear(i.last) // gateways come and go by certificate; the book forgets as well
	}
	i.last[s.Path] = is
	return !known || was != is
}

func serves(s *capacity.Summary) (ready bool) {
	for m := range s.Models {
		ready = ready || s.Models[m].Ready > 0
	}
	return ready
}

// lost marks a gateway whose session ended.
func (i *ingest) lost(_ identity.ID, p capacity.Path) {
	i.mu.Lock()
	i.book.Drop(p)
	i.last[p] = mark{lost: true}
	i.mu.Unlock()
	i.wake()
}

// forget drops what is held of a gateway that begins again with a lower boot.
func (i *ingest) forget(p capacity.Path) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.book.Forget(p)
}

// view is what the book says at now.
func (i *ingest) view(now time.Time) *capacity.View {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.book.View(now)
}
