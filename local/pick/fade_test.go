package pick

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhatSpeaksAgainstAWorkerFades: whatever was learned and whatever the peers are said to take, what is believed comes
// within a twentieth of the peers in twelve half-lives without an answer, never passes them, leaves alone what speaks for the
// worker, and is never NaN, clocks that go back included.
func TestWhatSpeaksAgainstAWorkerFades(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := NewLearner(PriorFor("L4", "llama-3.1-8b").Rates)
		for range rapid.IntRange(0, 60).Draw(rt, "answers") {
			l.FirstToken(rapid.Float64Range(1, 1e5).Draw(rt, "work"), rapid.Float64Range(1e-4, 600).Draw(rt, "seconds"))
			l.Step(rapid.Float64Range(1, 256).Draw(rt, "seqs"), rapid.Float64Range(0, 1e6).Draw(rt, "context"), rapid.Float64Range(1e-4, 10).Draw(rt, "step"))
		}
		peers := rapid.SampledFrom([]float64{0.3, 1, 4, 100, 0, -1, math.NaN(), math.Inf(1)}).Draw(rt, "peers")
		now := t0
		l.Fade(peers, peers, now)
		p0, s0, _ := l.Pace()
		for range 90 { // 2 s each
			now = now.Add(2 * time.Second)
			l.Fade(peers, peers, now)
		}
		l.Fade(peers, peers, now.Add(-time.Hour))
		p1, s1, _ := l.Pace()
		for _, x := range [][2]float64{{p0, p1}, {s0, s1}} {
			to := max(1/spread, min(peers, spread))
			switch {
			case math.IsNaN(x[1]) || math.IsInf(x[1], 0) || x[1] <= 0:
				rt.Fatalf("a pace of %v became %v", x[0], x[1])
			case !(peers > 0) || x[0] <= to:
				if x[1] != x[0] {
					rt.Fatalf("with peers at %v a pace of %v became %v", peers, x[0], x[1])
				}
			case x[1] > to*near*1.0001 || x[1] < to*0.9999:
				rt.Fatalf("with peers at %v a pace of %v became %v", peers, x[0], x[1])
			}
		}
	})
}

// TestAWorkerThatIsWellAgainGetsItsShareBack: at light load one of four workers is four times as slow for a minute and then
// well. Within three minutes it serves its quarter again. While it is slow for good instead, what is sent to it to find
// that out stays under 2 % of the requests.
func TestAWorkerThatIsWellAgainGetsItsShareBack(t *testing.T) {
	for _, forGood := range []bool{false, true} {
		v, l := fleet(4, "L4")
		rng := testRNG()
		var learners []*Learner
		for i := range v.Workers {
			learners = append(learners, NewLearner(v.Workers[i].Rates))
		}
		truth := v.Workers[0].Rates
		took := func(at int, now time.Time) float64 {
			s := 0.6 * (truth.PrefillBase + 1000/truth.PrefillRate) // all are faster than their prior
			if since := now.Sub(t0); at == 0 && since > time.Minute && (forGood || since < 2*time.Minute) {
				s *= 4
			}
			return s * math.Exp(0.05*rng.NormFloat64())
		}
		counts := map[int]int{}
		slow, late := 0, 0
		swept := t0
		for now := t0; now.Before(t0.Add(10 * time.Minute)); now = now.Add(500 * time.Millisecond) {
			if now.Sub(swept) >= 2*time.Second {
				swept = now
				var paces []float64
				for _, w := range learners {
					if p, _, ok := w.Pace(); ok {
						paces = append(paces, p)
					}
				}
				for _, w := range learners {
					w.Fade(Median(paces), 0, now)
				}
			}
			for i, w := range learners {
				change(v, i, func(x *Worker) { x.Rates = w.Rates() })
			}
			d, ok := Choose(&Query{PromptTokens: 1000, OutputTokens: 20, MaxWait: 5 * time.Second}, v, now, rng, nil)
			if !ok {
				t.Fatal("no worker")
			}
			e := l.Dispatch(v.Workers[d.Index].ID, 1000, 1020, v.Workers[d.Index].KVTotal, now)
			s := took(int(d.Index), now)
			at := now.Add(time.Duration(s * float64(time.Second)))
			l.FirstByte(&e, at)
			l.Finish(&e, at)
			learners[d.Index].FirstToken(1000, s)
			if now.Sub(t0) > 5*time.Minute {
				counts[int(d.Index)]++
				late++
			}
			if d.Index == 0 && now.Sub(t0) > 90*time.Second {
				slow++
			}
		}
		share := float64(counts[0]) / float64(late)
		t.Logf("slow for good %v: three minutes after, worker 0 has %.3f of the requests", forGood, share)
		if forGood && share > 0.02 || !forGood && (share < 0.15 || share > 0.35) {
			t.Errorf("slow for good %v: worker 0 has %.3f of the requests (%v)", forGood, share, counts)
		}
	}
}
