package batch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/batch"
)

type (
	item = batch.Item[int]
	call = batch.Call[int]
)

func newItem(t testing.TB, n, inputs int) *item {
	list := make([]string, inputs)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d.%d"`, n, i)
	}
	return &item{Part: embeddingsPart(t, `{"model":"m","input":[`+strings.Join(list, ",")+`]}`), Tenant: "acme", Class: spec.Standard, Value: n}
}

func values(c *call) (out []int) {
	if c != nil {
		for _, it := range c.Items {
			out = append(out, it.Value)
		}
	}
	return out
}

func TestIdleEngineIsNeverMadeToWait(t *testing.T) {
	l := batch.NewLane[int](batch.Config{MaxDelay: time.Second})
	now := time.Unix(0, 0)
	l.Add(newItem(t, 1, 1), now)
	first := l.Next(now)
	if got := values(first); !slices.Equal(got, []int{1}) || first.Reason != batch.Idle {
		t.Fatalf("first call is %v", got)
	}
	l.Add(newItem(t, 2, 1), now)
	l.Add(newItem(t, 3, 2), now.Add(time.Millisecond))
	if c := l.Next(now.Add(2 * time.Millisecond)); c != nil {
		t.Fatalf("a busy engine was sent %v", values(c))
	}
	if at := l.Wake(); !at.Equal(now.Add(time.Second)) {
		t.Fatalf("wakes at %v", at)
	}
	l.Done(first, false)
	if c := l.Next(now.Add(2 * time.Millisecond)); !slices.Equal(values(c), []int{2, 3}) || c.Size != 3 {
		t.Fatalf("second call is %v", values(c))
	}
}

func TestBusyEngineIsSentWhatIsFullOrDue(t *testing.T) {
	l := batch.NewLane[int](batch.Config{MaxSize: 4, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	l.Add(newItem(t, 0, 1), now)
	l.Next(now)
	for n := range 3 {
		l.Add(newItem(t, n+1, 2), now)
	}
	if c := l.Next(now); !slices.Equal(values(c), []int{1, 2}) || c.Reason != batch.Full {
		t.Fatalf("full call is %v", values(c))
	}
	if c := l.Next(now.Add(999 * time.Millisecond)); c != nil {
		t.Fatalf("sent early: %v", values(c))
	}
	if c := l.Next(now.Add(time.Second)); !slices.Equal(values(c), []int{3}) || c.Reason != batch.Due {
		t.Fatalf("due call is %v", values(c))
	}
}

func TestPreferredSizesRoundDownAndNeverDelay(t *testing.T) {
	l := batch.NewLane[int](batch.Config{MaxSize: 16, Preferred: []int{4, 8}, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	for n := range 11 {
		l.Add(newItem(t, n, 1), now)
	}
	l.SetWidth(3)
	var sizes []int
	for c := l.Next(now); c != nil; c = l.Next(now) {
		sizes = append(sizes, c.Size)
	}
	if !slices.Equal(sizes, []int{8, 3}) {
		t.Fatalf("sizes are %v", sizes)
	}
}

func TestEngineThatRefusesSizesGetsSmallerOnes(t *testing.T) {
	l := batch.NewLane[int](batch.Config{MaxSize: 32, MaxDelay: time.Second})
	now := time.Unix(0, 0)
	const most = 5 // what the engine takes, which nobody has told us
	refused, sent := 0, 0
	for n := range 4000 {
		l.Add(newItem(t, n, 1), now)
		if n%32 != 31 {
			continue
		}
		for c := l.Next(now); c != nil; c = l.Next(now) {
			sent++
			if c.Size > most {
				refused++
			}
			l.Done(c, c.Size > most)
		}
	}
	if !l.Empty() || refused*10 > sent || sent > 4000/3 {
		t.Fatalf("%d of %d calls were refused", refused, sent)
	}
}

func TestIdenticalRequestsOfOneTenantAreTwins(t *testing.T) {
	l := batch.NewLane[int](batch.Config{})
	now := time.Unix(0, 0)
	a, twin, other := newItem(t, 1, 1), newItem(t, 1, 1), newItem(t, 2, 1)
	l.Add(a, now)
	find := func() bool { return l.Twin(twin.Part, "acme", spec.Standard) == a }
	if !find() || l.Twin(other.Part, "acme", spec.Standard) != nil || l.Twin(twin.Part, "other", spec.Standard) != nil || l.Twin(twin.Part, "acme", spec.Batch) != nil {
		t.Fatal("the wrong twin")
	}
	c := l.Next(now)
	if !find() {
		t.Error("no twin once the call is under way")
	}
	l.Done(c, false)
	if find() || !l.Empty() {
		t.Error("a twin of an answer that has gone")
	}
	infer := inferPart(t, `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`)
	l.Add(&item{Part: infer}, now)
	if l.Twin(infer, "", 0) != nil {
		t.Error("inferences have no twins")
	}
}

// TestLane drives a lane with anything that can happen and holds it to its promises: everybody is sent exactly once or
// taken out, in order, with nobody that does not fit, inside the bounds, and as soon as is promised.
func TestLane(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := batch.Config{
			MaxSize: rapid.IntRange(1, 12).Draw(rt, "size"), MaxBytes: int64(rapid.IntRange(60, 400).Draw(rt, "bytes")),
			MaxDelay: time.Duration(rapid.IntRange(1, 20).Draw(rt, "delay")) * time.Millisecond, MaxHeld: rapid.IntRange(1, 30).Draw(rt, "held"),
		}
		if rapid.Bool().Draw(rt, "preferred") {
			cfg.Preferred = []int{2, 4, 8}
		}
		w := &world{rt: rt, cfg: cfg, lane: batch.NewLane[int](cfg), now: time.Unix(0, 0), width: 1, last: map[string]int{}}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			w.step(t)
			w.send()
		}
		for len(w.waiting) > 0 || len(w.calls) > 0 {
			w.now = w.now.Add(cfg.MaxDelay)
			w.send()
			for len(w.calls) > 0 {
				w.end(0)
			}
		}
		if !w.lane.Empty() || !w.lane.Wake().IsZero() {
			rt.Fatal("an empty lane holds something")
		}
	})
}

type world struct {
	rt      *rapid.T
	cfg     batch.Config
	lane    *batch.Lane[int]
	now     time.Time
	width   int
	n       int
	waiting []*item
	calls   []*call
	last    map[string]int // the newest value sent, by kind of request
}

func (w *world) step(t *testing.T) {
	switch rapid.IntRange(0, 9).Draw(w.rt, "what") {
	case 0:
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(w.rt, "ms")) * time.Millisecond)
	case 1:
		w.width = rapid.IntRange(1, 3).Draw(w.rt, "width")
		w.lane.SetWidth(w.width)
	case 2:
		if len(w.waiting) > 0 {
			i := rapid.IntRange(0, len(w.waiting)-1).Draw(w.rt, "leaves")
			w.lane.Remove(w.waiting[i])
			w.waiting = slices.Delete(w.waiting, i, i+1)
		}
	case 3, 4:
		if len(w.calls) > 0 {
			w.end(rapid.IntRange(0, len(w.calls)-1).Draw(w.rt, "ends"))
		}
	default:
		w.n++
		it := newItem(t, w.n, rapid.IntRange(1, 4).Draw(w.rt, "inputs"))
		it.Tenant = rapid.SampledFrom([]string{"a", "b"}).Draw(w.rt, "tenant")
		it.Class = spec.Class(rapid.IntRange(0, 1).Draw(w.rt, "class"))
		if w.lane.Add(it, w.now) {
			w.waiting = append(w.waiting, it)
		}
	}
	if held := len(w.waiting) + w.inCalls(); held > w.cfg.MaxHeld {
		w.rt.Fatalf("%d are held, at most %d may be", held, w.cfg.MaxHeld)
	}
}

func (w *world) inCalls() (n int) {
	for _, c := range w.calls {
		n += len(c.Items)
	}
	return n
}

func (w *world) end(i int) {
	w.lane.Done(w.calls[i], rapid.IntRange(0, 9).Draw(w.rt, "refused") == 0)
	w.calls = slices.Delete(w.calls, i, i+1)
}

// send takes what the lane sends and judges it.
func (w *world) send() {
	for c := w.lane.Next(w.now); c != nil; c = w.lane.Next(w.now) {
		w.judge(c)
		w.calls = append(w.calls, c)
	}
	for _, it := range w.waiting {
		if !it.Waiting() || w.now.Sub(it.Added()) >= w.cfg.MaxDelay {
			w.rt.Fatalf("%d waits since %v", it.Value, w.now.Sub(it.Added()))
		}
	}
	if len(w.waiting) > 0 && len(w.calls) < w.width {
		w.rt.Fatal("somebody waits for an idle engine")
	}
	if wake := w.lane.Wake(); len(w.waiting) > 0 && !wake.After(w.now) {
		w.rt.Fatal("the lane would wake at once again")
	}
}

func (w *world) judge(c *call) {
	size, bytes := 0, int64(0)
	first := c.Items[0]
	key := fmt.Sprint(first.Tenant, first.Class)
	for _, it := range c.Items {
		i := slices.Index(w.waiting, it)
		if i < 0 || it.Waiting() {
			w.rt.Fatalf("%d is sent and did not wait, or still does", it.Value)
		}
		w.waiting = slices.Delete(w.waiting, i, i+1)
		if it.Tenant != first.Tenant || it.Class != first.Class || !it.Part.Fits(first.Part) {
			w.rt.Fatalf("%d and %d share a call", it.Value, first.Value)
		}
		if it.Value <= w.last[key] {
			w.rt.Fatalf("%d is sent after %d", it.Value, w.last[key])
		}
		w.last[key] = it.Value
		size += it.Part.Items
		bytes += it.Part.Bytes()
	}
	if size != c.Size || len(c.Items) > 1 && (size > w.cfg.MaxSize || bytes > w.cfg.MaxBytes) {
		w.rt.Fatalf("a call of %d items and %d bytes, which says %d", size, bytes, c.Size)
	}
}
