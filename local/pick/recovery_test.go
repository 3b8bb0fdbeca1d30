package pick

import (
	"math"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// TestRecoveredWorkerRegainsItsShare: at light load one of four workers is four times as slow for a minute and then
// recovers. Within three minutes it serves a quarter of the requests again. If it stays slow instead, probing it takes
// under 2 % of the requests.
func TestRecoveredWorkerRegainsItsShare(t *testing.T) {
	for _, forGood := range []bool{false, true} {
		v, l := newTestFleet(4, "L4")
		rng := testRNG()
		var learners []*perfmodel.RateLearner
		for i := range v.Workers {
			learners = append(learners, perfmodel.NewRateLearner(v.Workers[i].Rates))
		}
		truth := v.Workers[0].Rates
		took := func(at int, now time.Time) float64 {
			s := 0.6 * (truth.PrefillBase + 1000/truth.PrefillRate) // all are faster than their prior
			if since := now.Sub(testStart); at == 0 && since > time.Minute && (forGood || since < 2*time.Minute) {
				s *= 4
			}
			return s * math.Exp(0.05*rng.NormFloat64())
		}
		counts := map[int]int{}
		slow, late := 0, 0
		swept := testStart
		for now := testStart; now.Before(testStart.Add(10 * time.Minute)); now = now.Add(500 * time.Millisecond) {
			if now.Sub(swept) >= 2*time.Second {
				swept = now
				var paces []float64
				for _, w := range learners {
					if p, _, ok := w.RelativePace(); ok {
						paces = append(paces, p)
					}
				}
				for _, w := range learners {
					w.DecayToCohort(perfmodel.SortedMedian(paces), 0, now)
				}
			}
			for i, w := range learners {
				editWorker(v, i, func(x *WorkerSnapshot) { x.Rates = w.Rates() })
			}
			d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 1000, OutputTokens: 20, MaxWait: 5 * time.Second}, v, now, rng, nil)
			if !ok {
				t.Fatal("no worker")
			}
			e := l.DispatchRequest(v.Workers[d.Index].ID, 1000, 1020, v.Workers[d.Index].KVTotal, now)
			s := took(int(d.Index), now)
			at := now.Add(time.Duration(s * float64(time.Second)))
			l.RecordFirstByte(&e, at)
			l.FinishRequest(&e, at)
			learners[d.Index].LearnFirstToken(1000, s)
			if now.Sub(testStart) > 5*time.Minute {
				counts[int(d.Index)]++
				late++
			}
			if d.Index == 0 && now.Sub(testStart) > 90*time.Second {
				slow++
			}
		}
		share := float64(counts[0]) / float64(late)
		t.Logf("permanently slow %v: three minutes later worker 0 gets %.3f of the requests", forGood, share)
		if forGood && share > 0.02 || !forGood && (share < 0.15 || share > 0.35) {
			t.Errorf("permanently slow %v: worker 0 gets %.3f of the requests (%v)", forGood, share, counts)
		}
	}
}
