package pick

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPain08_AMillionPrefixesStayInTheBound holds the index to its bytes under a million distinct prefixes, while workers join: few
// with long lists, and many with shorter ones.
func TestPain08_AMillionPrefixesStayInTheBound(t *testing.T) {
	for _, c := range []struct{ bound, most int }{{24 << 20, 100}, {2 << 20, 2}} {
		t.Run(fmt.Sprintf("%dMiB", c.bound>>20), func(t *testing.T) { testPrefixesStayInTheBound(t, int64(c.bound), c.most) })
	}
}

func testPrefixesStayInTheBound(t *testing.T, bound int64, most int) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := NewIndex(int(bound))
	blocks := make([]uint64, 4)
	check := func(when string) {
		t.Helper()
		if got := heap() - before; got > bound {
			t.Fatalf("%s the index takes %d bytes, over its bound of %d", when, got, bound)
		}
	}
	for i := range 1_000_000 {
		workers := 1 + i*most/1_000_000 // from 1 to so many
		for b := range blocks {
			blocks[b] = chain(uint64(i), uint64(b))
		}
		w := int32(i % workers)
		if i%10_000 == 0 {
			x.Reach(w, 4<<20, 4)
		}
		x.Insert(w, blocks)
		if i%125_000 == 99_999 {
			check(fmt.Sprintf("after %d prefixes and %d workers", i+1, workers))
		}
	}
	check("after the flood")
	if !x.match(blocks) || x.matched(int32(999_999%most)) != len(blocks) {
		t.Fatal("the newest prefix is not known")
	}
	if x.Len() < 1000 {
		t.Fatalf("only %d blocks are kept", x.Len())
	}
	runtime.KeepAlive(x)
}

func TestReachFollowsTheEnginesCache(t *testing.T) {
	x := NewIndex(1 << 30)
	x.Reach(0, 100_000, 4) // 400,000 bytes: 1,562 blocks of 256
	x.Reach(1, 0, 4)
	if x.limit(0) != 1562 || x.limit(1) != usualBlocks {
		t.Fatalf("lists may be %d and %d blocks long", x.limit(0), x.limit(1))
	}
	var buf [8]byte
	for i := range uint64(2000) {
		binary.LittleEndian.PutUint64(buf[:], i)
		x.Insert(0, []uint64{i})
	}
	x.Reach(0, 10_000, 4)
	if got := x.lists[0].len(); got != 156 {
		t.Fatalf("after its cache shrank a worker's list has %d blocks, want 156", got)
	}
	if !x.match([]uint64{1999}) || x.matched(0) != 1 {
		t.Fatal("the newest block went with the oldest")
	}
}

// TestAWorkerHoldsWhatItsCacheHolds: blocks far into a prompt are sixteen times as long as its first. Counted alike, some long
// prompts were believed to be cached where one was, whatever the engine had thrown out.
func TestAWorkerHoldsWhatItsCacheHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex(1 << 30)
		kv := rapid.Int64Range(1, 500_000).Draw(t, "kv")
		x.Reach(0, kv, 4)
		most := max(4*kv, minBlocks*fineSize)
		for i := range rapid.IntRange(1, 20).Draw(t, "prompts") {
			blocks := make([]uint64, rapid.IntRange(1, MaxBlocks).Draw(t, "blocks"))
			for b := range blocks {
				blocks[b] = chain(uint64(i), uint64(b))
			}
			x.Insert(0, blocks)
			held := int64(0)
			for n := x.lists[0].head; n != 0; n = x.lists[0].nodes[n-1].next {
				held += int64(x.lists[0].nodes[n-1].size) * fineSize
			}
			if held > most || held != int64(x.lists[0].size)*fineSize {
				t.Fatalf("it is believed to hold %d bytes, by its own count %d; its cache holds %d", held, x.lists[0].size*fineSize, most)
			}
			if got, want := x.Match(0, blocks), blockEnd(len(blocks)); got != want && want <= most {
				t.Fatalf("of a prompt of %d bytes that fits %d are known", want, got)
			}
		}
	})
}

func TestLengthsLearnByTenantAndPromptLength(t *testing.T) {
	l := NewLengths(100)
	if got := l.Predict("m", "a", 1000, 0.8, 384); got != 384 {
		t.Fatalf("nothing is known and %d is predicted", got)
	}
	for i := range 200 {
		l.Observe("m", "short", 1000, 20)
		l.Observe("m", "long", 1000, 2000)
		l.Observe("m", "mixed", 1000, []int64{10, 10, 10, 10, 500}[i%5])
	}
	near := func(tenant string, share float64, low, high int64) {
		t.Helper()
		if got := l.Predict("m", tenant, 1010, share, 384); got < low || got > high {
			t.Errorf("%s at %v: %d predicted, want %d to %d", tenant, share, got, low, high)
		}
	}
	near("short", 0.8, 20, 180)
	near("long", 0.8, 1900, 2400)
	near("mixed", 0.5, 10, 60)
	near("mixed", 0.9, 450, 900)
	if got := l.Predict("m", "newcomer", 1000, 0.5, 384); got < 10 || got > 500 {
		t.Errorf("a new tenant is believed to get %d, want what others got", got)
	}
	for range 600 {
		l.Observe("m", "long", 1000, 30) // it changed its ways
	}
	near("long", 0.8, 30, 200)
}

func TestLengthsAreBoundedAndSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "most")
		l := NewLengths(most)
		for i := range rapid.IntRange(1, 300).Draw(t, "n") {
			l.Observe(fmt.Sprint(i%3), fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "tenant")), rapid.Int64().Draw(t, "prompt"), rapid.Int64().Draw(t, "output"))
			if l.Len() > max(most, 4) || len(l.places) > max(most, 4) {
				t.Fatalf("%d places, the bound is %d", l.Len(), most)
			}
		}
		if got := l.Predict("1", "7", rapid.Int64().Draw(t, "p"), rapid.Float64().Draw(t, "share"), 100); got < 0 || got > 1<<20 {
			t.Fatalf("predicted %d tokens", got)
		}
	})
	for n := int64(1); n < 1<<17; n += 1 + n/50 {
		if b := lengthBin(n); float64(n) > lengthEnd(b) || b > 0 && float64(n) <= lengthEnd(b-1) && lengthEnd(b-1) > float64(n) {
			t.Fatalf("a length of %d is in bin %d, which ends at %v", n, b, lengthEnd(b))
		}
	}
}

func TestOvercommitFallsFastAndRecoversSlowly(t *testing.T) {
	o := NewOvercommit(1.2)
	if o.Factor(t0) != 1.2 {
		t.Fatal("it does not start at its limit")
	}
	o.Preempted(t0)
	o.Preempted(t0.Add(time.Second)) // the same wave
	if f := o.Factor(t0.Add(time.Second)); f < 1.07 || f > 1.1 {
		t.Fatalf("after one wave of preemptions the factor is %v", f)
	}
	for i := range 100 {
		o.OutOfMemory(t0.Add(time.Duration(10+10*i) * time.Second))
	}
	low := t0.Add(1001 * time.Second)
	if f := o.Factor(low); f < 0.6 || f > 0.63 {
		t.Fatalf("after many OOMs the factor is %v, want about half of the limit", f)
	}
	if f := o.Factor(low.Add(time.Minute)); f > 0.7 {
		t.Fatalf("a minute later it is %v already", f)
	}
	if f := o.Factor(low.Add(time.Hour)); f != 1.2 {
		t.Fatalf("an hour later it is %v, want the limit", f)
	}
	if f := o.Factor(t0.Add(-time.Hour)); f < 0.6 || f > 1.2 {
		t.Fatalf("with the clock set back it is %v", f)
	}
}

// TestOnlyPromisesAreOvercommitted: a cache that others fill is full, whatever the factor, and of the rest the factor's part more
// is promised.
func TestOnlyPromisesAreOvercommitted(t *testing.T) {
	const kv = 10_000
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Float64Range(0.5, MaxOvercommit).Draw(t, "factor")
		foreign := rapid.Int64Range(0, 2*kv).Draw(t, "foreign")
		b := gate{kv: kv, admitted: int64(kv * factor)}
		own := b.promised(foreign) - foreign
		if foreign >= kv && own > 0 {
			t.Fatalf("others hold %d of %d, and %d more are promised", foreign, kv, own)
		}
		want := int64(factor * kv)
		if factor > 1 {
			want = int64(factor * float64(max(kv-foreign, 0)))
			own = max(own, 0)
		} else {
			own += foreign
		}
		if d := own - want; d < -1 || d > 1 {
			t.Fatalf("with %d held by others and a factor of %v, %d may be promised, want %d", foreign, factor, own, want)
		}
	})
}

func TestOvercommitBoundsWhatIsPromised(t *testing.T) {
	v, l := fleet(1, "A100")
	change(v, 0, func(w *Worker) { w.KVTotal = 1000; w.Overcommit = 0.5 })
	l.Dispatch(0, 0, 400, 1000, t0)
	q := &Query{PromptTokens: 50, OutputTokens: 100}
	if d, ok := Choose(q, v, t0, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Fatalf("550 tokens were promised of 500: %+v", d)
	}
	change(v, 0, func(w *Worker) { w.Overcommit = 0.6 })
	if _, ok := Choose(q, v, t0, testRNG(), nil); !ok {
		t.Fatal("550 tokens were not promised of 600")
	}
}

// TestWhoNamesItsFirstTokenIsPromisedWhatIsThere: others may be promised more.
func TestWhoNamesItsFirstTokenIsPromisedWhatIsThere(t *testing.T) {
	v, l := fleet(1, "A100")
	change(v, 0, func(w *Worker) { w.KVTotal = 1000; w.Overcommit = 1.2 })
	l.Dispatch(0, 0, 900, 1000, t0)
	q := &Query{PromptTokens: 50, OutputTokens: 100}
	if _, ok := Choose(q, v, t0, testRNG(), nil); !ok {
		t.Error("1,050 tokens were not promised of 1,000 times 1.2")
	}
	q.Timed = true
	if d, ok := Choose(q, v, t0, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Errorf("a request that names its first token was promised the 1,050th token of 1,000: %+v", d)
	}
	q.OutputTokens = 50
	if _, ok := Choose(q, v, t0, testRNG(), nil); !ok {
		t.Error("it was not promised the 1,000th")
	}
}

// TestClockSetBack: the ledger goes on counting from where it was, and nothing turns negative or stands still.
func TestClockSetBack(t *testing.T) {
	l := NewLedger()
	id, _ := l.Add()
	e := l.Dispatch(id, 1000, 1000, 0, t0.Add(time.Hour))
	back := t0.Add(-time.Hour)
	if got := l.Load(id, 1000, back).Backlog; got != 1000 {
		t.Fatalf("the backlog is %d at the moment the clock is set back", got)
	}
	if got := l.Load(id, 1000, back.Add(500*time.Millisecond)).Backlog; got != 500 {
		t.Fatalf("half a second later the backlog is %d, want 500", got)
	}
	if got := l.Load(id, 1000, back.Add(499*time.Millisecond)).Backlog; got != 500 {
		t.Fatalf("a late caller made the clock go back: %d", got)
	}
	l.Finish(&e, back)
	var lat Latency
	lat.Observe(1, 0.5, t0)
	if p := lat.Peak(0.1, back); p != 0.5 {
		t.Fatalf("the peak is %v before it was seen", p)
	}
}

// TestSpareLeavesAFifthFree: who has its part already leaves a fifth of the cache to others.
func TestSpareLeavesAFifthFree(t *testing.T) {
	v, l := fleet(1, "A100")
	change(v, 0, func(w *Worker) { w.KVTotal = 1000 })
	l.Dispatch(0, 0, 700, 1000, t0)
	q := &Query{PromptTokens: 50, OutputTokens: 100, Spare: true}
	if d, ok := Choose(q, v, t0, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Fatalf("850 of 1,000 tokens were given to who has its part: %+v", d)
	}
	q.Spare = false
	if _, ok := Choose(q, v, t0, testRNG(), nil); !ok {
		t.Fatal("and not to who has not")
	}
}

// TestContendedFeedsAndNoMore: while others wait a worker's backlog is what keeps it busy, unless it holds the prompt.
func TestContendedFeedsAndNoMore(t *testing.T) {
	v, l := fleet(1, "L4")
	prompt := make([]byte, 8<<10)
	blocks := Blocks(nil, 1, prompt)
	e := l.Dispatch(0, 1200, 2000, 0, t0) // a third of a second on an L4
	q := &Query{PromptTokens: 2000, PromptBytes: int64(len(prompt)), OutputTokens: 10, Blocks: blocks, MaxWait: time.Second}
	look := func() bool {
		_, ok := Look(q, v, t0, testRNG(), nil)
		return ok
	}
	if !look() {
		t.Fatal("a backlog under the patience is no room")
	}
	q.Contended = true
	if look() {
		t.Error("a third of a second waits in the engine and more is sent there")
	}
	v.Index.Insert(0, blocks)
	if !look() {
		t.Error("a worker that holds the prompt is not worth its wait")
	}
	v.Index.Forget(0)
	l.FirstByte(&e, t0)
	if !look() {
		t.Error("a worker with nothing before it has no room")
	}
}
