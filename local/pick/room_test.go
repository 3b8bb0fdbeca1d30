package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
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
