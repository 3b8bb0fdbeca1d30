package lifetime_test

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

	"github.com/spillway-lb/spillway/internal/lifetime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errWhy = errors.New("why")

type told struct{ n atomic.Int32 }

func (t *told) Ended() { t.n.Add(1) }

type key struct{}

// TestLikeTheLibrary does the same to a tree of ours and to one of the library's, in any order, and asks both the same.
func TestLikeTheLibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(bubbled{t}, likeTheLibrary) })
}

// bubbled hides the deadline, which may not be asked for in a bubble.
type bubbled struct{ *testing.T }

// Deadline is none.
func (bubbled) Deadline() (time.Time, bool) { return time.Time{}, false }

func likeTheLibrary(t *rapid.T) {
	type node struct {
		ours, theirs context.Context
		end          func(error)
		endTheirs    context.CancelCauseFunc
		hook         *lifetime.Hook
		told         *told
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
		case 0: // one of ours below
			c := lifetime.Under(n.ours)
			ctx, cancel := context.WithCancelCause(n.theirs)
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: c.End, endTheirs: cancel})
		case 1: // one of theirs below
			c, end := context.WithCancelCause(n.ours)
			ctx, cancel := context.WithCancelCause(n.theirs)
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: end, endTheirs: cancel})
		case 2: // one with a value
			v := len(nodes)
			c := &lifetime.Context{}
			c.BeginWith(n.ours, key{}, v)
			ctx, cancel := context.WithCancelCause(context.WithValue(n.theirs, key{}, v))
			nodes = append(nodes, &node{ours: c, theirs: ctx, end: c.End, endTheirs: cancel})
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
			if _, ours := n.ours.(*lifetime.Context); ours && n.hook == nil {
				n.hook, n.told, n.fired = &lifetime.Hook{}, &told{}, &atomic.Int32{}
				n.hook.Watch(n.ours, n.told)
			}
		case 6:
			if n.hook != nil && !n.left {
				n.left = true
				if left, over := n.hook.Leave(), n.theirs.Err() != nil; left == over {
					t.Fatalf("Leave is %v of a context that has ended: %v", left, over)
				}
				n.hook = nil
			}
		}
		synctest.Wait() // the end of a library's context reaches ours from a goroutine
		for _, n := range nodes {
			if n.ours.Err() != n.theirs.Err() {
				t.Fatalf("Err is %v and not %v", n.ours.Err(), n.theirs.Err())
			}
			if a, b := context.Cause(n.ours), context.Cause(n.theirs); a != b {
				t.Fatalf("Cause is %v and not %v", a, b)
			}
			if a, b := n.ours.Value(key{}), n.theirs.Value(key{}); a != b {
				t.Fatalf("Value is %v and not %v", a, b)
			}
			if n.told != nil && !n.left && (n.told.n.Load() == 1) != (n.theirs.Err() != nil) {
				t.Fatalf("told %d times of %v", n.told.n.Load(), n.theirs.Err())
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

// TestDerived has the library derive from ours what it does from its own, with no goroutine for it: goleak and the
// bubble would see one.
func TestDerived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lifetime.Under(t.Context())
		child, cancel := context.WithTimeout(c, time.Minute)
		defer cancel()
		ran := make(chan struct{})
		stop := context.AfterFunc(c, func() { close(ran) })
		c.End(errWhy)
		<-ran
		<-child.Done()
		if stop() || context.Cause(child) != errWhy || child.Err() != context.Canceled {
			t.Fatalf("%v, %v", child.Err(), context.Cause(child))
		}
		late := false
		context.AfterFunc(c, func() { late = true })
		synctest.Wait()
		if !late {
			t.Fatal("what was derived after the end was not told")
		}
	})
}

// TestLibraryAbove: the end of a library's context reaches ours, its cause with it.
func TestLibraryAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeoutCause(t.Context(), time.Second, errWhy)
		defer cancel()
		c := lifetime.Under(parent)
		who := &told{}
		var h lifetime.Hook
		h.Watch(c, who)
		<-c.Done()
		synctest.Wait()
		if c.Err() != context.DeadlineExceeded || context.Cause(c) != errWhy || who.n.Load() != 1 || h.Leave() {
			t.Fatalf("%v, %v, told %d", c.Err(), context.Cause(c), who.n.Load())
		}
	})
}

// TestAtOnce has many begin, watch, leave and end at the same time: each is told once or has left, never both or neither.
func TestAtOnce(t *testing.T) {
	for range 200 {
		c := lifetime.Under(context.Background())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				sub := lifetime.Under(c)
				who := &told{}
				var h lifetime.Hook
				h.Watch(sub, who)
				_ = sub.Value(key{})
				left := h.Leave()
				sub.End(nil)
				if left == (who.n.Load() == 1) && left {
					t.Error("told, and it had left")
				}
			})
		}
		wg.Go(func() { c.End(errWhy) })
		wg.Wait()
	}
}

func TestNoMemory(t *testing.T) {
	parent := lifetime.Under(context.Background())
	type state struct {
		ctx lifetime.Context
		h   lifetime.Hook
		t   told
	}
	if n := testing.AllocsPerRun(100, func() {
		s := &state{}
		s.ctx.Begin(parent)
		s.h.Watch(&s.ctx, &s.t)
		s.h.Leave()
		s.ctx.End(nil)
	}); n > 1 {
		t.Fatalf("%v allocations beside the holder's own", n-1)
	}
}
