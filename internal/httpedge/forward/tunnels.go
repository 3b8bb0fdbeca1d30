package forward

import (
	"context"
	"fmt"
	"sync"
)

// OpenTunnels holds the open WebSockets of a tier: servers do not track hijacked connections, but a shutdown
// must wait for them. The zero value is ready to use.
type OpenTunnels struct {
	mu        sync.Mutex
	nextID    int
	cancels   map[int]context.CancelCauseFunc
	endSignal chan struct{} // signalled when one has ended
}

// AddTunnel adds a tunnel and the function that ends it. The returned function removes it.
func (t *OpenTunnels) AddTunnel(cancel context.CancelCauseFunc) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.initMaps()
	t.nextID++
	n := t.nextID
	t.cancels[n] = cancel
	return func() {
		t.mu.Lock()
		delete(t.cancels, n)
		t.mu.Unlock()
		select {
		case t.endSignal <- struct{}{}:
		default:
		}
	}
}

func (t *OpenTunnels) initMaps() {
	if t.cancels == nil {
		t.cancels, t.endSignal = map[int]context.CancelCauseFunc{}, make(chan struct{}, 1)
	}
}

// Len returns the number of open tunnels.
func (t *OpenTunnels) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.cancels)
}

// Stop waits for the tunnels until ctx ends, and then ends them with the cause why. The error states how many
// it had to end.
func (t *OpenTunnels) Stop(ctx context.Context, why error) error {
	t.mu.Lock()
	t.initMaps()
	t.mu.Unlock()
	for t.Len() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d WebSockets to finish: %w", t.cancelAll(why), ctx.Err())
		case <-t.endSignal:
		}
	}
	return nil
}

func (t *OpenTunnels) cancelAll(why error) (ended int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cancel := range t.cancels {
		cancel(why)
	}
	return len(t.cancels)
}
