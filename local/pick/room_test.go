package pick

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
	"pgregory.net/rapid"
)

// TestOnlyReservedKVIsOvercommitted: a cache that foreign sequences fill is full for any factor, and only the rest is
// overcommitted.
func TestOnlyReservedKVIsOvercommitted(t *testing.T) {
	const kv = 10_000
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Float64Range(0.5, perfmodel.MaxOvercommit).Draw(t, "factor")
		foreign := rapid.Int64Range(0, 2*kv).Draw(t, "foreign")
		b := roomInputs{kvTotal: kv, kvAdmitted: int64(kv * factor)}
		own := b.kvLimit(foreign) - foreign
		if foreign >= kv && own > 0 {
			t.Fatalf("foreign sequences hold %d of %d, and %d more may be reserved", foreign, kv, own)
		}
		want := int64(factor * kv)
		if factor > 1 {
			want = int64(factor * float64(max(kv-foreign, 0)))
			own = max(own, 0)
		} else {
			own += foreign
		}
		if d := own - want; d < -1 || d > 1 {
			t.Fatalf("with %d foreign tokens and a factor of %v, %d may be reserved, want %d", foreign, factor, own, want)
		}
	})
}

func TestOvercommitBoundsReservedKV(t *testing.T) {
	v, l := newTestFleet(1, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.KVTotal = 1000; w.Overcommit = 0.5 })
	l.DispatchRequest(0, 0, 400, 1000, testStart)
	q := &PlacementQuery{PromptTokens: 50, OutputTokens: 100}
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Fatalf("550 tokens were reserved of 500: %+v", d)
	}
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Overcommit = 0.6 })
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
		t.Fatal("550 tokens were not reserved of 600")
	}
}

// TestTTFTRequestUsesNoOvercommittedKV: requests without a TTFT target may use it.
func TestTTFTRequestUsesNoOvercommittedKV(t *testing.T) {
	v, l := newTestFleet(1, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.KVTotal = 1000; w.Overcommit = 1.2 })
	l.DispatchRequest(0, 0, 900, 1000, testStart)
	q := &PlacementQuery{PromptTokens: 50, OutputTokens: 100}
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
		t.Error("1,050 tokens were not reserved of 1,000 times 1.2")
	}
	q.SLO.TTFT = time.Second
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Errorf("a request with a TTFT target reserved the 1,050th token of 1,000: %+v", d)
	}
	q.OutputTokens = 50
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
		t.Error("it did not reserve the 1,000th")
	}
}

// TestReserveHeadroomLeavesAFifthFree: a request with ReserveHeadroom leaves a fifth of the cache to other tenants.
func TestReserveHeadroomLeavesAFifthFree(t *testing.T) {
	v, l := newTestFleet(1, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.KVTotal = 1000 })
	l.DispatchRequest(0, 0, 700, 1000, testStart)
	q := &PlacementQuery{PromptTokens: 50, OutputTokens: 100, Share: ShareLimits{ReserveHeadroom: true}}
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok || d.Reason != ReasonBusy {
		t.Fatalf("850 of 1,000 tokens were reserved with ReserveHeadroom: %+v", d)
	}
	q.Share.ReserveHeadroom = false
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
		t.Fatal("850 of 1,000 tokens were not reserved without ReserveHeadroom")
	}
}

// TestContendedWorkerIsSentOneStepOfPrefill: while others wait, a worker's backlog is limited to what keeps it busy,
// unless it holds the prompt.
func TestContendedWorkerIsSentOneStepOfPrefill(t *testing.T) {
	v, l := newTestFleet(1, "L4")
	prompt := make([]byte, 8<<10)
	blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
	e := l.DispatchRequest(0, 1200, 2000, 0, testStart) // a third of a second on an L4
	q := &PlacementQuery{PromptTokens: 2000, PromptBytes: int64(len(prompt)), OutputTokens: 10, Blocks: blocks, MaxWait: time.Second}
	look := func() bool {
		_, ok := PeekWorker(q, v, testStart, testRNG(), nil)
		return ok
	}
	if !look() {
		t.Fatal("a worker with a backlog under MaxWait has no room")
	}
	q.Share.Contended = true
	if look() {
		t.Error("a contended worker with a backlog of a third of a second is sent more")
	}
	v.Index.InsertPrompt(0, blocks)
	if !look() {
		t.Error("a worker that holds the prompt is not chosen despite its backlog")
	}
	v.Index.ForgetWorker(0)
	l.RecordFirstByte(&e, testStart)
	if !look() {
		t.Error("an idle worker has no room")
	}
}

// TestLateWorkerIsAvoidedBeforeItAnswers: the lateness of a worker's oldest prompt adds to its cost, and the worker has
// no room once lateness exceeds MaxWait. One first token clears it.
func TestLateWorkerIsAvoidedBeforeItAnswers(t *testing.T) {
	v, l := newTestFleet(2, "L4")
	q := &PlacementQuery{PromptTokens: 500, OutputTokens: 50, MaxWait: time.Second}
	silent := l.DispatchRequest(0, 500, 600, v.Workers[0].KVTotal, testStart)
	next := l.DispatchRequest(0, 500, 600, v.Workers[0].KVTotal, testStart)
	for range 12 {
		e := l.DispatchRequest(1, 0, 600, v.Workers[1].KVTotal, testStart)
		l.RecordFirstByte(&e, testStart)
	}
	if d, ok := ChooseWorker(q, v, testStart.Add(300*time.Millisecond), testRNG(), nil); !ok || d.Index != 0 {
		t.Fatalf("a worker is avoided before it is late: %+v", d)
	}
	if d, ok := ChooseWorker(q, v, testStart.Add(1500*time.Millisecond), testRNG(), nil); !ok || d.Index != 1 {
		t.Fatalf("a worker without a first token after 1.5 s, expected after 0.3 s, is still chosen: %+v", d)
	}
	at := testStart.Add(5 * time.Second)
	PeekWorker(q, v, at, testRNG(), nil)
	if r := v.placement.checkRoom(0); r != ineligibleBacklog {
		t.Errorf("after 5 s without a first token it has room: %q", r)
	}
	l.RecordFirstByte(&silent, at)
	if d, ok := ChooseWorker(q, v, at.Add(10*time.Millisecond), testRNG(), nil); !ok || d.Index != 0 {
		t.Errorf("it has answered and is still avoided: %+v", d)
	}
	l.RecordFirstByte(&next, at)
	if a := l.TotalsOf(0).LateSeconds(l.ClockAt(at.Add(time.Hour)), 1000, 0.1); a != 0 {
		t.Errorf("it has no prefill, and is %v s late", a)
	}
}

// TestPromptsWithSharedPrefixFitTogether: prompts of 4,000 tokens with 3,900 in common each count only their own
// tokens, so many fit where only four without a common prefix do. A scrape that shows more KV in use is accepted.
func TestPromptsWithSharedPrefixFitTogether(t *testing.T) {
	alike := make([]byte, 15_600)
	run := func(begin func(i int) []byte) (n int, l *inflight.Ledger, id int32) {
		l = inflight.NewLedger()
		id, _ = l.AddWorker()
		v := NewWorkerView([]WorkerSnapshot{{ID: id, Name: "w", KVTotal: 20_000, Rates: perfmodel.Rates{PrefillRate: 10_000, StepBase: 0.01, StepSlope: 0.001}}}, l, prefix.NewIndex(1<<20), Predictive)
		now := time.Unix(100, 0)
		for i := range 100 {
			q := PlacementQuery{PromptTokens: 4000, PromptBytes: 16_000, OutputTokens: 200, Blocks: blockhash.AppendBlockHashes(nil, 1, begin(i))}
			d, ok := ChooseWorker(&q, v, now, nil, nil)
			if !ok {
				return i, l, id
			}
			l.DispatchPrompt(d.ID, 100, q.KVTokens(), 20_000, q.PromptPrefix(), now)
		}
		return 100, l, id
	}
	n, l, id := run(func(int) []byte { return alike })
	if load := l.ReadLoad(id, 1, time.Unix(100, 0)); n < 40 || load.HeldKV() > 20_000 || load.HeldKV() < 19_000 {
		t.Errorf("%d prompts with a shared prefix run, and hold %d tokens", n, load.HeldKV())
	}
	l.ObserveScrape(id, inflight.ScrapedLoad{Running: int64(n), KVUsed: 19_900})
	l.ObserveScrape(id, inflight.ScrapedLoad{Running: int64(n), KVUsed: 19_900})
	if held := l.ReadLoad(id, 1, time.Unix(100, 0)).HeldKV(); held != 19_900 {
		t.Errorf("an engine that holds 19,900 tokens is counted with %d", held)
	}
	n, _, _ = run(func(i int) []byte { alike[0] = byte(i); return alike })
	if n != 4 {
		t.Errorf("%d prompts without a shared prefix run", n)
	}
}
