package relay

import (
	"context"
	"fmt"
	"sync"
)

// Tunnels are the WebSockets that are open in one tier: servers forget connections that were taken over, and a stop must
// not. The zero value is ready.
type Tunnels struct {
	mu   sync.Mutex
	next int
	open map[int]context.CancelCauseFunc
	left chan struct{} // one has ended since the last look
}

// Enter counts one in, and knows now how to end it. What it returns counts it out.
func (t *Tunnels) Enter(cancel context.CancelCauseFunc) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.make()
	t.next++
	n := t.next
	t.open[n] = cancel
	return func() {
		t.mu.Lock()
		delete(t.open, n)
		t.mu.Unlock()
		select {
		case t.left <- struct{}{}:
		default:
		}
	}
}

func (t *Tunnels) make() {
	if t.open == nil {
		t.open, t.left = map[int]context.CancelCauseFunc{}, make(chan struct{}, 1)
	}
}

// Len is how many are open.
func (t *Tunnels) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// Stop waits for them until ctx ends, and then ends them for that reason. The error says how many it had to end.
func (t *Tunnels) Stop(ctx context.Context, why error) error {
	t.mu.Lock()
	t.make()
	t.mu.Unlock()
	for t.Len() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d WebSockets to finish: %w", t.end(why), ctx.Err())
		case <-t.left:
		}
	}
	return nil
}

func (t *Tunnels) end(why error) (ended int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cancel := range t.open {
		cancel(why)
	}
	return len(t.open)
}
