package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// tunnels are the WebSockets that are open: servers forget connections that were taken over, and a stop must not.
type tunnels struct {
	mu   sync.Mutex
	next int
	open map[int]context.CancelCauseFunc
}

var errStopping = errors.New("the gateway stops")

// enter counts one in. What it returns counts it out.
func (t *tunnels) enter(cancel context.CancelCauseFunc) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[int]context.CancelCauseFunc{}
	}
	t.next++
	n := t.next
	t.open[n] = cancel
	return func() {
		t.mu.Lock()
		delete(t.open, n)
		t.mu.Unlock()
	}
}

func (t *tunnels) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// stop waits for them until ctx ends, and then ends them.
func (t *tunnels) stop(ctx context.Context) error {
	for t.len() > 0 {
		select {
		case <-ctx.Done():
			n := t.len()
			t.cut()
			return fmt.Errorf("waiting for %d WebSockets to finish: %w", n, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (t *tunnels) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cancel := range t.open {
		cancel(errStopping)
	}
}
