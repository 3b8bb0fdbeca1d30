package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
)

// TestTPOTTargetLimitsBatch: every policy avoids a worker whose batch is too large for the target while there is
// another, and the explanation shows why. When no worker meets the target, one is chosen all the same.
func TestTPOTTargetLimitsBatch(t *testing.T) {
	for _, p := range policyNames() {
		v, l := newTestFleet(3, "H100")
		policy, err := ParsePolicy(p)
		if err != nil {
			t.Fatal(err)
		}
		v = NewWorkerView(v.Workers, l, v.Index, policy)
		for _, busy := range []int32{0, 1} {
			for range 80 {
				l.DispatchRequest(busy, 500, 2000, v.Workers[busy].KVTotal, testStart)
			}
		}
		crowded := v.Workers[0].Rates.StepSeconds(81, float64(l.TotalsOf(0).HeldKV()))
		alone := v.Workers[2].Rates.StepSeconds(1, 600)
		if crowded < 2*alone {
			t.Fatalf("a step of 81 sequences takes %v s, of one %v", crowded, alone)
		}
		between := time.Duration((crowded + alone) / 2 * float64(time.Second))
		for range 20 {
			var rec explain.Explanation
			q := &PlacementQuery{PromptTokens: 500, OutputTokens: 200, Key: 7, SLO: SLO{TPOT: between}}
			d, ok := ChooseWorker(q, v, testStart, testRNG(), nil)
			if !ok || d.Index != 2 {
				t.Fatalf("%s: with a TPOT of %v it chose %+v, %v", p, between, d, ok)
			}
			if d, ok := PeekWorker(q, v, testStart, testRNG(), &rec); !ok || d.Index != 2 {
				t.Fatalf("%s: with an explanation it is %+v", p, d)
			}
			q.SLO.TPOT = time.Nanosecond
			if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
				t.Fatalf("%s: a target that no worker meets is refused: %+v", p, d)
			}
		}
	}
}

// TestTPOTIsKeptWherePossible: in any fleet, the chosen worker meets the target if any worker with room does, and
// nothing is allocated for it.
func TestTPOTIsKeptWherePossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, l := newTestFleet(rapid.IntRange(1, 6).Draw(t, "workers"), "L4", "H100")
		for i := range v.Workers {
			for range rapid.IntRange(0, 30).Draw(t, "busy") {
				l.DispatchRequest(int32(i), 300, 900, v.Workers[i].KVTotal, testStart)
			}
		}
		q := &PlacementQuery{PromptTokens: 400, OutputTokens: 100, SLO: SLO{TPOT: time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond}}
		d, ok := ChooseWorker(q, v, testStart, testRNG(), nil)
		if !ok {
			return
		}
		took := predictStepOn(&v.placement, int32(d.Index))
		for i := range v.Workers {
			if s := predictStepOn(&v.placement, int32(i)); s <= q.SLO.TPOT.Seconds() && took > q.SLO.TPOT.Seconds() && v.placement.checkRoom(i) == eligible {
				t.Fatalf("worker %d was chosen with a step of %v s, worker %d has room and one of %v", d.Index, took, i, s)
			}
		}
	})
	v, _ := newTestFleet(50, "L4", "H100")
	q := &PlacementQuery{PromptTokens: 400, OutputTokens: 100, SLO: SLO{TPOT: 30 * time.Millisecond}}
	rng := testRNG()
	if n := testing.AllocsPerRun(100, func() { ChooseWorker(q, v, testStart, rng, nil) }); n != 0 {
		t.Errorf("%v allocations for a choice", n)
	}
}

// TestWaitForTPOTAvoidsLargeBatch: the request waits where a smaller batch would meet the target, and not where none
// would.
func TestWaitForTPOTAvoidsLargeBatch(t *testing.T) {
	v, l := newTestFleet(1, "H100")
	for range 120 {
		e := l.DispatchRequest(0, 500, 2000, v.Workers[0].KVTotal, testStart)
		l.RecordFirstByte(&e, testStart.Add(-time.Hour)) // long ago: no prefill counts
	}
	alone, crowded := v.Workers[0].Rates.StepSeconds(1, 600), predictStepOn(&v.placement, 0)
	if crowded < 2*alone {
		t.Fatalf("a step of 121 takes %v s, of one %v", crowded, alone)
	}
	for _, c := range []struct {
		what          string
		step          float64
		steady, spare bool
		want          bool
	}{
		{"may not wait", crowded / 2, false, false, true},
		{"may wait", crowded / 2, true, false, false},
		{"may wait, and no worker meets the target", alone / 2, true, false, true},
		{"may wait, and the batch is small enough", crowded * 1.2, true, false, true},
		{"leaves a part to others", crowded * 1.2, true, true, false},
		{"leaves a part to others, and may not wait", crowded * 1.2, false, true, true},
	} {
		q := &PlacementQuery{PromptTokens: 500, OutputTokens: 200, SLO: SLO{TPOT: time.Duration(c.step * float64(time.Second)), WaitForTPOT: c.steady}, Share: ShareLimits{ReserveHeadroom: c.spare}}
		if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok != c.want || !ok && d.Reason != ReasonBusy {
			t.Errorf("%s: placed %v, %s", c.what, ok, d.Reason)
		}
	}
}

// TestPrefillsLengthenPredictedStep: a step is longer by the part of the time that prefills take, for as long as they
// arrive.
func TestPrefillsLengthenPredictedStep(t *testing.T) {
	v, l := newTestFleet(1, "H100")
	at, before := testStart, 0.0
	for range 300 { // half of the time
		e := l.DispatchRequest(0, int64(0.05*v.Workers[0].Rates.PrefillRate), 10, v.Workers[0].KVTotal, at)
		at = at.Add(100 * time.Millisecond)
		l.RecordFirstByte(&e, at)
		l.FinishRequest(&e, at)
	}
	q := &PlacementQuery{PromptTokens: 500, OutputTokens: 200}
	v.placement.setRequest(q, at, testRNG())
	before = v.Workers[0].Rates.StepSeconds(1, 600)
	if s := predictStepOn(&v.placement, 0); s < 1.5*before || s > 2.2*before {
		t.Errorf("a step takes %v s while prefills take half of the time, and %v without", s, before)
	}
	v.placement.setRequest(q, at.Add(time.Minute), testRNG())
	if s := predictStepOn(&v.placement, 0); s > 1.01*before {
		t.Errorf("a minute after the last prefill a step takes %v s, want %v", s, before)
	}
}
