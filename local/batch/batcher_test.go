package batch_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/batch"
)

type (
	testItem = batch.Item[int]
	testCall = batch.Call[int]
)

func newItem(t testing.TB, n, inputs int) *testItem {
	list := make([]string, inputs)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d.%d"`, n, i)
	}
	return &testItem{Part: embeddingsPart(t, `{"model":"m","input":[`+strings.Join(list, ",")+`]}`), Tenant: "acme", Class: spec.Standard, Value: n}
}

func itemValues(c *testCall) (out []int) {
	if c != nil {
		for _, it := range c.Items {
			out = append(out, it.Value)
		}
	}
	return out
}

func TestIdleEngineGetsCallsAtOnce(t *testing.T) {
	l := batch.NewBatcher[int](batch.Config{MaxDelay: time.Second})
	now := time.Unix(0, 0)
	l.AddItem(newItem(t, 1, 1), now)
	first := l.NextCall(now)
	if got := itemValues(first); !slices.Equal(got, []int{1}) || first.Reason != batch.CallIdle {
		t.Fatalf("first call is %v", got)
	}
	l.AddItem(newItem(t, 2, 1), now)
	l.AddItem(newItem(t, 3, 2), now.Add(time.Millisecond))
	if c := l.NextCall(now.Add(2 * time.Millisecond)); c != nil {
		t.Fatalf("a busy engine was sent %v", itemValues(c))
	}
	if at := l.NextDue(); !at.Equal(now.Add(time.Second)) {
		t.Fatalf("wakes at %v", at)
	}
	l.FinishCall(first, false)
	if c := l.NextCall(now.Add(2 * time.Millisecond)); !slices.Equal(itemValues(c), []int{2, 3}) || c.Size != 3 {
		t.Fatalf("second call is %v", itemValues(c))
	}
}

func TestBusyEngineGetsOnlyFullOrDueCalls(t *testing.T) {
	l := batch.NewBatcher[int](batch.Config{MaxSize: 4, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	l.AddItem(newItem(t, 0, 1), now)
	l.NextCall(now)
	for n := range 3 {
		l.AddItem(newItem(t, n+1, 2), now)
	}
	if c := l.NextCall(now); !slices.Equal(itemValues(c), []int{1, 2}) || c.Reason != batch.CallFull {
		t.Fatalf("full call is %v", itemValues(c))
	}
	if c := l.NextCall(now.Add(999 * time.Millisecond)); c != nil {
		t.Fatalf("sent early: %v", itemValues(c))
	}
	if c := l.NextCall(now.Add(time.Second)); !slices.Equal(itemValues(c), []int{3}) || c.Reason != batch.CallDue {
		t.Fatalf("due call is %v", itemValues(c))
	}
}

func TestPreferredSizesRoundDownAndNeverDelay(t *testing.T) {
	l := batch.NewBatcher[int](batch.Config{MaxSize: 16, Preferred: []int{4, 8}, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	for n := range 11 {
		l.AddItem(newItem(t, n, 1), now)
	}
	l.SetConcurrency(3)
	var sizes []int
	for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
		sizes = append(sizes, c.Size)
	}
	if !slices.Equal(sizes, []int{8, 3}) {
		t.Fatalf("sizes are %v", sizes)
	}
}

func TestEngineThatRefusesSizesGetsSmallerOnes(t *testing.T) {
	l := batch.NewBatcher[int](batch.Config{MaxSize: 32, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	const most = 5 // the engine's maximum, which the batcher is not configured with
	refused, sent := 0, 0
	for n := range 4000 {
		l.AddItem(newItem(t, n, 1), now)
		if n%32 != 31 {
			continue
		}
		for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
			sent++
			if c.Size > most {
				refused++
			}
			l.FinishCall(c, c.Size > most)
		}
	}
	if !l.IsEmpty() || refused*10 > sent || sent > 4000/3 {
		t.Fatalf("%d of %d calls were refused", refused, sent)
	}
}

func TestIdenticalRequestsOfOneTenantAreFound(t *testing.T) {
	l := batch.NewBatcher[int](batch.Config{})
	now := time.Unix(0, 0)
	a, twin, other := newItem(t, 1, 1), newItem(t, 1, 1), newItem(t, 2, 1)
	l.AddItem(a, now)
	find := func() bool { return l.FindIdentical(twin.Part, "acme", spec.Standard) == a }
	if !find() || l.FindIdentical(other.Part, "acme", spec.Standard) != nil || l.FindIdentical(twin.Part, "other", spec.Standard) != nil || l.FindIdentical(twin.Part, "acme", spec.Batch) != nil {
		t.Fatal("the wrong identical item")
	}
	c := l.NextCall(now)
	if !find() {
		t.Error("no identical item once the call is under way")
	}
	l.FinishCall(c, false)
	if find() || !l.IsEmpty() {
		t.Error("an identical item of a finished call")
	}
	infer := inferPart(t, `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`)
	l.AddItem(&testItem{Part: infer}, now)
	if l.FindIdentical(infer, "", 0) != nil {
		t.Error("an inference has an identical item")
	}
}

// TestBatcherInvariants drives a batcher with random operations and checks its invariants. Each item is sent exactly once or
// removed, in order, only with items that it can be merged with, within the bounds, and without undue delay.
func TestBatcherInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := batch.Config{
			MaxSize: rapid.IntRange(1, 12).Draw(rt, "size"), MaxBytes: int64(rapid.IntRange(60, 400).Draw(rt, "bytes")),
			MaxDelay: time.Duration(rapid.IntRange(1, 20).Draw(rt, "delay")) * time.Millisecond, MaxHeld: rapid.IntRange(1, 30).Draw(rt, "held"),
		}
		if rapid.Bool().Draw(rt, "preferred") {
			cfg.Preferred = []int{2, 4, 8}
		}
		w := &batcherModel{rt: rt, cfg: cfg, batcher: batch.NewBatcher[int](cfg), now: time.Unix(0, 0), concurrency: 1, lastSent: map[string]int{}}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			w.randomStep(t)
			w.sendCalls()
		}
		for len(w.waiting) > 0 || len(w.calls) > 0 {
			w.now = w.now.Add(cfg.MaxDelay)
			w.sendCalls()
			for len(w.calls) > 0 {
				w.finishCall(0)
			}
		}
		if !w.batcher.IsEmpty() || !w.batcher.NextDue().IsZero() {
			rt.Fatal("an empty batcher holds something")
		}
	})
}

type batcherModel struct {
	rt          *rapid.T
	cfg         batch.Config
	batcher     *batch.Batcher[int]
	now         time.Time
	concurrency int
	lastValue   int
	waiting     []*testItem
	calls       []*testCall
	lastSent    map[string]int // the newest value sent, by kind of request
}

func (w *batcherModel) randomStep(t *testing.T) {
	switch rapid.IntRange(0, 9).Draw(w.rt, "what") {
	case 0:
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(w.rt, "ms")) * time.Millisecond)
	case 1:
		w.concurrency = rapid.IntRange(1, 3).Draw(w.rt, "width")
		w.batcher.SetConcurrency(w.concurrency)
	case 2:
		if len(w.waiting) > 0 {
			i := rapid.IntRange(0, len(w.waiting)-1).Draw(w.rt, "leaves")
			w.batcher.RemoveItem(w.waiting[i])
			w.waiting = slices.Delete(w.waiting, i, i+1)
		}
	case 3, 4:
		if len(w.calls) > 0 {
			w.finishCall(rapid.IntRange(0, len(w.calls)-1).Draw(w.rt, "ends"))
		}
	default:
		w.lastValue++
		it := newItem(t, w.lastValue, rapid.IntRange(1, 4).Draw(w.rt, "inputs"))
		it.Tenant = rapid.SampledFrom([]string{"a", "b"}).Draw(w.rt, "tenant")
		it.Class = spec.Class(rapid.IntRange(0, 1).Draw(w.rt, "class"))
		if w.batcher.AddItem(it, w.now) {
			w.waiting = append(w.waiting, it)
		}
	}
	if held := len(w.waiting) + w.countInCalls(); held > w.cfg.MaxHeld {
		w.rt.Fatalf("%d are held, at most %d may be", held, w.cfg.MaxHeld)
	}
}

func (w *batcherModel) countInCalls() (n int) {
	for _, c := range w.calls {
		n += len(c.Items)
	}
	return n
}

func (w *batcherModel) finishCall(i int) {
	w.batcher.FinishCall(w.calls[i], rapid.IntRange(0, 9).Draw(w.rt, "refused") == 0)
	w.calls = slices.Delete(w.calls, i, i+1)
}

// sendCalls takes the calls that the batcher sends and checks them.
func (w *batcherModel) sendCalls() {
	for c := w.batcher.NextCall(w.now); c != nil; c = w.batcher.NextCall(w.now) {
		w.checkCall(c)
		w.calls = append(w.calls, c)
	}
	for _, it := range w.waiting {
		if !it.IsWaiting() || w.now.Sub(it.AddedAt()) >= w.cfg.MaxDelay {
			w.rt.Fatalf("%d waits since %v", it.Value, w.now.Sub(it.AddedAt()))
		}
	}
	if len(w.waiting) > 0 && len(w.calls) < w.concurrency {
		w.rt.Fatal("an item waits for an idle engine")
	}
	if wake := w.batcher.NextDue(); len(w.waiting) > 0 && !wake.After(w.now) {
		w.rt.Fatal("the batcher is due again at once")
	}
}

func (w *batcherModel) checkCall(c *testCall) {
	size, bytes := 0, int64(0)
	first := c.Items[0]
	key := fmt.Sprint(first.Tenant, first.Class)
	for _, it := range c.Items {
		i := slices.Index(w.waiting, it)
		if i < 0 || it.IsWaiting() {
			w.rt.Fatalf("%d is sent and did not wait, or still does", it.Value)
		}
		w.waiting = slices.Delete(w.waiting, i, i+1)
		if it.Tenant != first.Tenant || it.Class != first.Class || !it.Part.CanMergeWith(first.Part) {
			w.rt.Fatalf("%d and %d share a call", it.Value, first.Value)
		}
		if it.Value <= w.lastSent[key] {
			w.rt.Fatalf("%d is sent after %d", it.Value, w.lastSent[key])
		}
		w.lastSent[key] = it.Value
		size += it.Part.Items
		bytes += it.Part.Bytes()
	}
	if size != c.Size || len(c.Items) > 1 && (size > w.cfg.MaxSize || bytes > w.cfg.MaxBytes) {
		w.rt.Fatalf("a call of %d items and %d bytes, with a stated size of %d", size, bytes, c.Size)
	}
}

// TestInvalidInputDoesNotHarmBatcher uses bounds and concurrencies that are negative or maximal, delays that overflow a time, and
// a clock that jumps both ways. Nothing panics, and no item is lost or sent twice. An idle engine is given work at once, and at a
// busy one items are sent within the delay by the present clock, regardless of its earlier values.
func TestInvalidInputDoesNotHarmBatcher(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		absurd := rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, 3, math.MaxInt32, math.MaxInt})
		cfg := batch.Config{
			MaxSize: absurd.Draw(rt, "size"), MaxBytes: int64(absurd.Draw(rt, "bytes")), MaxDelay: time.Duration(absurd.Draw(rt, "delay")),
			MaxHeld: absurd.Draw(rt, "held"), MaxHeldBytes: int64(absurd.Draw(rt, "held bytes")), Preferred: rapid.SliceOfN(absurd, 0, 3).Draw(rt, "preferred"),
		}
		l := batch.NewBatcher[int](cfg)
		l.SetConcurrency(absurd.Draw(rt, "width"))
		now := time.Unix(1e9, 0)
		waiting := map[int]*testItem{}
		var flying []*testCall
		take := func(c *testCall) {
			sum := 0
			for _, it := range c.Items {
				if waiting[it.Value] == nil || it.IsWaiting() {
					rt.Fatalf("item %d was sent twice or still waits", it.Value)
				}
				delete(waiting, it.Value)
				sum += it.Part.Items
			}
			if sum != c.Size || sum == 0 {
				rt.Fatalf("a call of %d items has Size %d", sum, c.Size)
			}
			flying = append(flying, c)
		}
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.Int64Range(-int64(2000*time.Hour), int64(2000*time.Hour)).Draw(rt, "jump")))
			case 1:
				if len(flying) > 0 {
					l.FinishCall(flying[0], rapid.Bool().Draw(rt, "refused"))
					flying = flying[1:]
				}
			default:
				if it := newItem(t, n, rapid.IntRange(1, 40).Draw(rt, "inputs")); l.AddItem(it, now) {
					waiting[n] = it
				}
			}
			for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
				take(c)
			}
			if len(flying) == 0 && len(waiting) > 0 {
				rt.Fatalf("%d wait for an idle engine", len(waiting))
			}
			delay := cfg.MaxDelay
			if delay <= 0 {
				delay = 5 * time.Millisecond
			}
			if at := l.NextDue(); !at.IsZero() && delay < 1000*time.Hour && at.After(now.Add(delay)) {
				rt.Fatalf("it is %v and the waiting items are due at %v, with a delay of %v", now, at, delay)
			}
		}
		for len(flying) > 0 {
			l.FinishCall(flying[0], false)
			flying = flying[1:]
			for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
				take(c)
			}
		}
		if len(waiting) > 0 || !l.IsEmpty() {
			rt.Fatalf("%d items were lost; empty is %v", len(waiting), l.IsEmpty())
		}
	})
}
