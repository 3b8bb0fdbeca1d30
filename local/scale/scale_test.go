package scale_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/scale"
)

var dawn = time.Unix(1_700_000_000, 0)

// one is a replica that prefills 10,000 and decodes 1,000 tokens/s.
var one = scale.Demand{Prefill: 10_000, Decode: 1000}

// run offers a demand for so long, a second at a time, and returns what is desired each second.
func run(m *scale.Meter, s *scale.State, c scale.Config, from time.Time, seconds int, offer func(i int) scale.Demand) (out []scale.Output, end time.Time) {
	for i := range seconds {
		now := from.Add(time.Duration(i) * time.Second)
		m.Offer(offer(i), now)
		in := scale.Input{Replica: one}
		in.Rate, in.Trend = m.Rates(now)
		out = append(out, scale.Decide(c, &in, s, now))
	}
	return out, from.Add(time.Duration(seconds) * time.Second)
}

func steady(prefill, decode float64) func(int) scale.Demand {
	return func(int) scale.Demand { return scale.Demand{Prefill: prefill, Decode: decode} }
}

func TestSteadyDemandNeedsItsShareOfTheTarget(t *testing.T) {
	var m scale.Meter
	var s scale.State
	out, _ := run(&m, &s, scale.Config{Target: 0.5, Min: 1, Window: time.Minute}, dawn, 300, steady(10_000, 500))
	last := out[len(out)-1]
	// Prefill fills one replica, decode half of one; at half use that is three.
	if math.Abs(last.Needed-3) > 0.15 || last.Desired < 3 || last.Desired > 4 || math.Abs(last.Use-1.5) > 0.1 {
		t.Errorf("%+v", last)
	}
}

func TestGrowthIsCarriedOnOverTheLeadTime(t *testing.T) {
	grow := func(lead time.Duration) float64 {
		var m scale.Meter
		var s scale.State
		out, _ := run(&m, &s, scale.Config{Target: 1, Lead: lead}, dawn, 120, func(i int) scale.Demand { return scale.Demand{Prefill: 2 * float64(i) * float64(i)} })
		return out[119].Needed
	}
	if fast, slow := grow(time.Second), grow(time.Minute); slow < fast*1.3 {
		t.Errorf("needed %v with a lead of a second and %v with a minute", fast, slow)
	}
}

func TestScaleDownWaitsForTheWindow(t *testing.T) {
	var m scale.Meter
	var s scale.State
	c := scale.Config{Target: 0.7, Window: 5 * time.Minute}
	out, now := run(&m, &s, c, dawn, 400, steady(30_000, 0))
	busy := out[399].Desired
	out, _ = run(&m, &s, c, now, 900, steady(0, 0))
	for i, o := range out {
		if i < 240 && o.Desired < busy {
			t.Fatalf("%d replicas instead of %d, %d s after the demand has gone", o.Desired, busy, i)
		}
	}
	if last := out[899]; last.Desired != 0 || last.Needed != 0 {
		t.Errorf("without demand and without a floor: %+v", last)
	}
}

func TestANewInstanceKeepsWhatThereIs(t *testing.T) {
	var s scale.State
	c := scale.Config{Min: 1, Window: time.Minute}
	if o := scale.Decide(c, &scale.Input{Replica: one, Ready: 7}, &s, dawn); o.Desired != 7 {
		t.Errorf("just started: %+v", o)
	}
	if o := scale.Decide(c, &scale.Input{Replica: one, Ready: 7}, &s, dawn.Add(2*time.Minute)); o.Desired != 1 {
		t.Errorf("after a window without demand: %+v", o)
	}
}

// TestMoreDemandNeverWantsLess: with one history, more of anything asks for as many replicas or more.
func TestMoreDemandNeverWantsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.Float64Range(0, 1e7)
		in := scale.Input{
			Rate: scale.Demand{Prefill: any.Draw(t, "p"), Decode: any.Draw(t, "d")}, Trend: scale.Demand{Prefill: rapid.Float64Range(-1e5, 1e5).Draw(t, "tp")},
			Replica: scale.Demand{Prefill: rapid.Float64Range(0, 1e5).Draw(t, "rp"), Decode: rapid.Float64Range(0, 1e5).Draw(t, "rd")}, Backlog: any.Draw(t, "b"),
		}
		more := in
		more.Rate.Prefill += any.Draw(t, "more p")
		more.Rate.Decode += any.Draw(t, "more d")
		more.Backlog += any.Draw(t, "more b")
		c := scale.Config{Target: rapid.Float64Range(0.05, 1).Draw(t, "target"), Max: rapid.IntRange(0, 100).Draw(t, "max")}
		var a, b scale.State
		x, y := scale.Decide(c, &in, &a, dawn), scale.Decide(c, &more, &b, dawn)
		if y.Needed < x.Needed || y.Desired < x.Desired || y.Use < x.Use {
			t.Fatalf("%+v, and with more demand %+v", x, y)
		}
	})
}

// TestNoiseDoesNotFlap: demand that stays around a mean, half as much and more by the second, settles.
func TestNoiseDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m scale.Meter
		var s scale.State
		mean := rapid.Float64Range(1000, 200_000).Draw(t, "mean")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		out, _ := run(&m, &s, scale.Config{Target: 0.7, Min: 1}, dawn, 1800, func(int) scale.Demand {
			return scale.Demand{Prefill: mean * (0.5 + rng.Float64())}
		})
		// Five windows pass: it may come down once in each, and stays near what the mean needs.
		down, least, most := 0, out[301].Desired, 0
		for i := 301; i < len(out); i++ {
			least, most = min(least, out[i].Desired), max(most, out[i].Desired)
			if out[i].Desired < out[i-1].Desired {
				down++
			}
		}
		if down > 5 || float64(most) > 1.6*float64(least)+1 {
			t.Fatalf("%d times down, between %d and %d replicas, in 25 minutes of steady demand", down, least, most)
		}
	})
}

// TestNeverOutOfBounds: whatever goes in, what comes out is a number inside the bounds.
func TestNeverOutOfBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64}))
		c := scale.Config{Target: odd.Draw(t, "target"), Min: rapid.IntRange(-5, 9).Draw(t, "min"), Lead: time.Duration(rapid.Int64().Draw(t, "lead")), Window: time.Duration(rapid.Int64().Draw(t, "window"))}
		c.Max = max(c.Min, 0) + rapid.IntRange(1, 50).Draw(t, "max")
		var m scale.Meter
		var s scale.State
		now := dawn
		for range 20 {
			now = now.Add(time.Duration(rapid.Int64Range(-1e11, 1e12).Draw(t, "pass")))
			m.Offer(scale.Demand{Prefill: odd.Draw(t, "p"), Decode: odd.Draw(t, "d")}, now)
			in := scale.Input{Replica: scale.Demand{Prefill: odd.Draw(t, "rp"), Decode: odd.Draw(t, "rd")}, Backlog: odd.Draw(t, "b"), Ready: rapid.IntRange(0, 9).Draw(t, "ready")}
			in.Rate, in.Trend = m.Rates(now)
			o := scale.Decide(c, &in, &s, now)
			if o.Desired < max(c.Min, 0) || o.Desired > c.Max || !(o.Needed >= 0 && o.Needed <= 1e6) || !(o.Use >= 0 && o.Use <= 1e15) {
				t.Fatalf("%+v of %+v", o, in)
			}
		}
	})
}

func TestWaits(t *testing.T) {
	var w scale.Waits
	if a, b := w.Quantiles(dawn); a != 0 || b != 0 {
		t.Error(a, b)
	}
	for i := range 1000 {
		w.Add(time.Duration(i)*time.Millisecond, dawn)
	}
	if p50, p99 := w.Quantiles(dawn); p50 < 0.7 || p50 > 0.8 || p99 < 0.99 || p99 > 1 {
		t.Error(p50, p99)
	}
	if p50, _ := w.Quantiles(dawn.Add(2 * time.Minute)); p50 != 0 {
		t.Error("old waits count")
	}
}
