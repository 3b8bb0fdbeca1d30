package reqctx_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errWhy = errors.New("why")

type endCounter struct{ count atomic.Int32 }

func (t *endCounter) EndRequest() { t.count.Add(1) }

type valueKey struct{}

// TestContextBehavesAsStandardLibrary applies the same operations in random order to a tree of Contexts and to
// one of standard contexts, and compares them.
func TestContextBehavesAsStandardLibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(bubbleT{t}, checkAgainstStdContext) })
}

// bubbleT hides the deadline, which cannot be read in a synctest bubble.
type bubbleT struct{ *testing.T }

// Deadline returns none.
func (bubbleT) Deadline() (time.Time, bool) { return time.Time{}, false }

func checkAgainstStdContext(t *rapid.T) {
	type node struct {
		ours, theirs context.Context
		end          func(error)
		endTheirs    context.CancelCauseFunc
		hook         *reqctx.EndHook
		ended        *endCounter
		fired        *atomic.Int32
		left         bool
	}
	nodes := []*node{{ours: context.Background(), theirs: context.Background()}}
	pick := func() *node { return nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")] }
	defer func() {
		for _, n := range nodes[1:] {
			n.end(nil)
			n.endTheirs(nil)
		}
	}()
	for range rapid.IntRange(1, 24).Draw(t, "steps") {
		n := pick()
		switch rapid.IntRange(0, 6).Draw(t, "step") {
		case 0: // a Context below
			c := reqctx.NewUnder(n.ours)
			ctx, cancel := context.WithCancelCause(n.theirs)
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: c.EndWithCause, endTheirs: cancel})
		case 1: // a standard context below
			c, end := context.WithCancelCause(n.ours)
			ctx, cancel := context.WithCancelCause(n.theirs)
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: end, endTheirs: cancel})
		case 2: // a context with a value
			v := len(nodes)
			c := &reqctx.Context{}
			c.StartWithValue(n.ours, valueKey{}, v)
			ctx, cancel := context.WithCancelCause(context.WithValue(n.theirs, valueKey{}, v))
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: c.EndWithCause, endTheirs: cancel})
		case 3:
			if n.end != nil {
				n.end(errWhy)
				n.endTheirs(errWhy)
			}
		case 4:
			if n.end != nil {
				n.end(nil)
				n.endTheirs(nil)
			}
		case 5:
			if _, ours := n.ours.(*reqctx.Context); ours && n.hook == nil {
				n.hook, n.ended, n.fired = &reqctx.EndHook{}, &endCounter{}, &atomic.Int32{}
				n.hook.WatchContext(n.ours, n.ended)
			}
		case 6:
			if n.hook != nil && !n.left {
				n.left = true
				if left, over := n.hook.StopWatching(), n.theirs.Err() != nil; left == over {
					t.Fatalf("Leave is %v of a context that has ended: %v", left, over)
				}
				n.hook = nil
			}
		}
		synctest.Wait() // the end of a standard context propagates by a goroutine
		for _, n := range nodes {
			if n.ours.Err() != n.theirs.Err() {
				t.Fatalf("Err is %v and not %v", n.ours.Err(), n.theirs.Err())
			}
			if a, b := context.Cause(n.ours), context.Cause(n.theirs); a != b {
				t.Fatalf("Cause is %v and not %v", a, b)
			}
			if a, b := n.ours.Value(valueKey{}), n.theirs.Value(valueKey{}); a != b {
				t.Fatalf("Value is %v and not %v", a, b)
			}
			if n.ended != nil && !n.left && (n.ended.count.Load() == 1) != (n.theirs.Err() != nil) {
				t.Fatalf("EndRequest was called %d times, Err is %v", n.ended.count.Load(), n.theirs.Err())
			}
		}
	}
	for _, n := range nodes {
		if n.end == nil {
			continue
		}
		over := false
		select {
		case <-n.ours.Done():
			over = true
		default:
		}
		if over != (n.theirs.Err() != nil) {
			t.Fatalf("Done is %v, and Err %v", over, n.theirs.Err())
		}
	}
}

// TestStandardContextsDeriveFromContext derives standard contexts from a Context without a goroutine: goleak
// and the bubble would detect one.
func TestStandardContextsDeriveFromContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := reqctx.NewUnder(t.Context())
		child, cancel := context.WithTimeout(c, time.Minute)
		defer cancel()
		ran := make(chan struct{})
		stop := context.AfterFunc(c, func() { close(ran) })
		c.EndWithCause(errWhy)
		<-ran
		<-child.Done()
		if stop() || context.Cause(child) != errWhy || child.Err() != context.Canceled {
			t.Fatalf("%v, %v", child.Err(), context.Cause(child))
		}
		late := false
		context.AfterFunc(c, func() { late = true })
		synctest.Wait()
		if !late {
			t.Fatal("a hook added after the end was not called")
		}
	})
}

// TestContextEndsWithStandardParent: the end of a standard context propagates with its cause.
func TestContextEndsWithStandardParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeoutCause(t.Context(), time.Second, errWhy)
		defer cancel()
		c := reqctx.NewUnder(parent)
		who := &endCounter{}
		var h reqctx.EndHook
		h.WatchContext(c, who)
		<-c.Done()
		synctest.Wait()
		if c.Err() != context.DeadlineExceeded || context.Cause(c) != errWhy || who.count.Load() != 1 || h.StopWatching() {
			t.Fatalf("%v, %v, %d calls", c.Err(), context.Cause(c), who.count.Load())
		}
	})
}

// TestConcurrentEndAndWatch starts, watches, stops and ends concurrently: each watcher is either notified once
// or stopped, never both or neither.
func TestConcurrentEndAndWatch(t *testing.T) {
	for range 200 {
		c := reqctx.NewUnder(context.Background())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				sub := reqctx.NewUnder(c)
				who := &endCounter{}
				var h reqctx.EndHook
				h.WatchContext(sub, who)
				_ = sub.Value(valueKey{})
				left := h.StopWatching()
				sub.EndWithCause(nil)
				if left == (who.count.Load() == 1) && left {
					t.Error("EndRequest was called after StopWatching")
				}
			})
		}
		wg.Go(func() { c.EndWithCause(errWhy) })
		wg.Wait()
	}
}

func TestEmbeddedContextAllocatesNothing(t *testing.T) {
	parent := reqctx.NewUnder(context.Background())
	type state struct {
		ctx reqctx.Context
		h   reqctx.EndHook
		t   endCounter
	}
	if n := testing.AllocsPerRun(100, func() {
		s := &state{}
		s.ctx.StartUnder(parent)
		s.h.WatchContext(&s.ctx, &s.t)
		s.h.StopWatching()
		s.ctx.EndWithCause(nil)
	}); n > 1 {
		t.Fatalf("%v allocations in addition to the holder's own", n-1)
	}
}
