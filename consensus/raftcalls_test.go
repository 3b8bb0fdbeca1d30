package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// lateFuture is a call that raft answers after a delay.
type lateFuture struct{ delay time.Duration }

// Error implements raft.Future.
func (f lateFuture) Error() error {
	time.Sleep(f.delay)
	return nil
}

// TestDrainWaitsForAbandonedCalls: a call whose caller has gone is waited for until raft answers it, and no call is
// made any more.
func TestDrainWaitsForAbandonedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c raftCalls
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.awaitFuture(ctx, func() raft.Future { return lateFuture{3 * time.Second} }); !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("a call without an answer returned %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := c.closeAndDrain(short); n != 1 {
			t.Errorf("%d calls are pending at the end of the wait, want 1", n)
		}
		made := false
		err := c.awaitFuture(t.Context(), func() raft.Future { made = true; return lateFuture{} })
		if made || !errors.Is(err, ErrStopped) || !errors.As(err, new(errUnsent)) {
			t.Errorf("after the end of calls: made %t, %v", made, err)
		}
		<-c.drained // raft's answer ends the call
	})
	synctest.Test(t, func(t *testing.T) {
		var c raftCalls
		begun := time.Now()
		go func() { _ = c.awaitFuture(t.Context(), func() raft.Future { return lateFuture{3 * time.Second} }) }()
		synctest.Wait()
		if n := c.closeAndDrain(t.Context()); n != 0 || time.Since(begun) != 3*time.Second {
			t.Errorf("%d calls are pending after %s, want none after 3s", n, time.Since(begun))
		}
	})
}

// TestNoCallOfRaftOutlivesStop stops a node in the middle of writes and reads of many clients, and kills it likewise:
// raft has then answered every call.
func TestNoCallOfRaftOutlivesStop(t *testing.T) {
	s := newSoloNode(t)
	for round := range 8 {
		n, err := New(s.nodeConfig(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.PutSpec(t.Context(), 0, []byte("spec"), "alice"); err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		writing := make(chan struct{}, 64)
		for i := range 16 {
			clients.Go(func() {
				for w := 0; ; w++ {
					err := n.PutDrain(t.Context(), Drain{Path: fmt.Sprintf("eu/%d", i)})
					if i%4 == 0 && err == nil {
						_, err = n.ReadLinearizable(t.Context())
					}
					if err != nil {
						if !errors.Is(err, ErrStopped) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) {
							t.Errorf("writing to a node that stops: %v", err)
						}
						return
					}
					select {
					case writing <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 64 {
			<-writing
		}
		if round%2 == 0 {
			s.stopNode(n)
		} else {
			n.Kill()
		}
		n.raft.calls.mu.Lock()
		if p := n.raft.calls.pending; p != 0 {
			t.Errorf("round %d: %d calls are pending after the stop", round, p)
		}
		n.raft.calls.mu.Unlock()
		clients.Wait()
	}
}
