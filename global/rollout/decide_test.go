package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"pgregory.net/rapid"
)

const testRolloutNumber = 7

func mustParse(t rapid.TB, text string) AbortConditions {
	t.Helper()
	g, err := ParseConditions(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// makeOutcome returns requests of which some are faults, each with its first byte after ttft.
func makeOutcome(stage uint64, model string, requests, faults int64, ttft time.Duration) capacity.OutcomeCounts {
	o := capacity.OutcomeCounts{Stage: stage, Service: "chat.", Model: model, Requests: requests, Failures: faults}
	o.TTFT[capacity.TTFTBucket(ttft)] = requests - faults
	return o
}

func makeRegion(name string, os ...capacity.OutcomeCounts) RegionReport {
	return RegionReport{Name: name, Reporting: true, Outcomes: os}
}

func TestDecideRollout(t *testing.T) {
	const fast, slow = 100 * time.Millisecond, 400 * time.Millisecond
	good := makeOutcome(testRolloutNumber, "m", 1000, 1, fast)
	usual := makeOutcome(0, "m", 1000, 1, fast)
	for name, c := range map[string]struct {
		guard string
		in    RolloutInput
		want  RolloutAction
		why   string
	}{
		"under way":        {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", good)}, Elapsed: time.Second}, Wait, "1s of 1m0s"},
		"window over":      {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", good)}, Elapsed: time.Minute}, Promote, "without a breach"},
		"no guard":         {"", RolloutInput{Staged: []RegionReport{makeRegion("eu")}, Elapsed: time.Minute}, Promote, ""},
		"errors":           {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 100, 12, fast))}}, Rollback, "eu: error_rate is 12% of 100 requests, limit 2%"},
		"bad luck":         {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 50, 2, fast))}, Elapsed: time.Hour}, Wait, "may be chance"},
		"all of a few":     {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 49, 49, fast))}, Elapsed: time.Hour}, Wait, "too few"},
		"fewer are enough": {"error_rate<2%,requests>=10", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 10, 10, fast))}}, Rollback, ""},
		"silent, window over": {
			"error_rate<2%",
			RolloutInput{Staged: []RegionReport{{Name: "eu", Outcomes: []capacity.OutcomeCounts{good}}}, Elapsed: time.Hour},
			Wait, "does not report",
		},
		"one of two is silent": {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", good), {Name: "us"}}, Elapsed: time.Hour}, Wait, "does not report"},
		"one of two is idle":   {"error_rate<2%", RolloutInput{Staged: []RegionReport{makeRegion("eu", good), makeRegion("us")}, Elapsed: time.Hour}, Wait, "us: error_rate"},
		"a small model breaks": {
			"error_rate<5%",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "big", 10_000, 0, fast), makeOutcome(testRolloutNumber, "small", 60, 60, fast))}},
			Rollback, "eu small of chat.: error_rate is 100% of 60",
		},
		"errors of before the stage are not its own": {
			"error_rate<2%",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(0, "m", 1000, 900, fast), good)}, Elapsed: time.Minute},
			Promote, "",
		},
		"slower than before": {"ttft_p99<1.5x", RolloutInput{Staged: []RegionReport{makeRegion("eu", usual, makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}}, Rollback, "(1.5x)"},
		"slow everywhere": {
			"ttft_p99<1.5x",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", usual, makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}, Others: []RegionReport{makeRegion("us", makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}, Elapsed: time.Minute},
			Promote, "",
		},
		"always slower than the others": {
			"ttft_p99<1.5x",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(0, "m", 1000, 0, slow), makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}, Others: []RegionReport{makeRegion("us", makeOutcome(testRolloutNumber, "m", 1000, 0, fast))}, Elapsed: time.Minute},
			Promote, "",
		},
		"nothing to compare with": {"ttft_p99<1.5x", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}, Elapsed: time.Hour}, Wait, "nothing to compare with"},
		"seconds":                 {"ttft_p50<300ms", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 1000, 0, slow))}}, Rollback, "ttft_p50 is"},
		"p99 of 60":               {"ttft_p99<300ms", RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 60, 0, slow))}}, Wait, ""},
		"one error where none was": {
			"error_rate<1.5x",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(0, "m", 200, 0, fast), makeOutcome(testRolloutNumber, "m", 200, 1, fast))}},
			Wait, "",
		},
		"refusals": {
			"refused_rate<5%",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", capacity.OutcomeCounts{Stage: testRolloutNumber, Requests: 100, Refused: 60})}},
			Rollback, "refused_rate is 60%",
		},
		"everywhere, one region lost": {
			"error_rate<2%",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", good), {Name: "us"}}, Everywhere: true, Elapsed: time.Minute},
			Promote, "",
		},
		"everywhere, one region breaks": {
			"error_rate<2%",
			RolloutInput{Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 1_000_000, 0, fast)), makeRegion("us", makeOutcome(testRolloutNumber, "m", 100, 50, fast))}, Everywhere: true},
			Rollback, "us: error_rate is 50%",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in
			in.Conditions, in.Number, in.Window = mustParse(t, c.guard), testRolloutNumber, time.Minute
			v := DecideRollout(&in)
			if v.Action != c.want || !strings.Contains(v.Reason, c.why) {
				t.Errorf("%s because %q, want %s because %q\n%s", v.Action, v.Reason, c.want, c.why, v.FormatReport())
			}
		})
	}
}

func TestWithoutWindowOnlyABreachEndsTheRollout(t *testing.T) {
	in := RolloutInput{Conditions: mustParse(t, "error_rate<2%"), Number: testRolloutNumber, Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 1000, 0, 1))}, Elapsed: 1000 * time.Hour}
	if v := DecideRollout(&in); v.Action != Wait {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
	in.Staged = []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", 1000, 500, 1))}
	if v := DecideRollout(&in); v.Action != Rollback {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
}

func drawRegion(t *rapid.T, name string) RegionReport {
	r := RegionReport{Name: name, Reporting: rapid.Bool().Draw(t, "heard")}
	for _, stage := range []uint64{0, testRolloutNumber} {
		for _, model := range []string{"a", "b"} {
			n := rapid.Int64Range(0, 400).Draw(t, "requests")
			o := makeOutcome(stage, model, n, rapid.Int64Range(0, n).Draw(t, "faults"), time.Duration(rapid.IntRange(1, 2000).Draw(t, "ttft"))*time.Millisecond)
			r.Outcomes = append(r.Outcomes, o)
		}
	}
	return r
}

// TestNothingIsDecidedWithoutData: without the minimum sample nothing is promoted or rolled back, a breach is never
// promoted, and nothing is promoted before its time or without reports.
func TestNothingIsDecidedWithoutData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := RolloutInput{
			Conditions: AbortConditions{MinRequests: rapid.Int64Range(1, 200).Draw(t, "min")},
			Number:     testRolloutNumber, Window: time.Minute, Elapsed: time.Duration(rapid.IntRange(0, 120).Draw(t, "elapsed")) * time.Second,
			Staged: []RegionReport{drawRegion(t, "eu")}, Others: []RegionReport{drawRegion(t, "us")}, Everywhere: rapid.Bool().Draw(t, "everywhere"),
		}
		for _, text := range []string{"error_rate<2%", "ttft_p90<1.5x", "error_rate<2x", "ttft_p50<500ms"} {
			if rapid.Bool().Draw(t, text) {
				in.Conditions.Rules = append(in.Conditions.Rules, mustParse(t, text).Rules...)
			}
		}
		v := DecideRollout(&in)
		if again := DecideRollout(&in); again.Action != v.Action || again.Reason != v.Reason {
			t.Fatal("the same figures are judged in two ways")
		}
		worst := int64(0)
		for _, f := range v.Findings {
			if f.state == stateBreached && f.Sample < in.Conditions.MinRequests {
				t.Fatalf("a breach on %d requests", f.Sample)
			}
			if f.state == stateBreached {
				worst++
			}
			if v.Action == Promote && f.isTotal && f.Sample < in.Conditions.MinRequests {
				t.Fatalf("promoted on %d requests", f.Sample)
			}
		}
		if (v.Action == Rollback) != (worst > 0) {
			t.Fatalf("%s with %d breaches", v.Action, worst)
		}
		if v.Action == Promote && (!v.TimeCounts || in.Elapsed < in.Window) {
			t.Fatalf("promoted after %s, counting: %v", in.Elapsed, v.TimeCounts)
		}
	})
}

// TestMoreErrorsNeverUndoARollback: a rollback remains one when more of the same requests fail.
func TestMoreErrorsNeverUndoARollback(t *testing.T) {
	g := mustParse(t, "error_rate<3%")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 3000).Draw(t, "requests")
		k := rapid.Int64Range(0, n).Draw(t, "faults")
		more := rapid.Int64Range(k, n).Draw(t, "more")
		judge := func(k int64) RolloutDecision {
			return DecideRollout(&RolloutInput{Conditions: g, Number: testRolloutNumber, Window: time.Minute, Staged: []RegionReport{makeRegion("eu", makeOutcome(testRolloutNumber, "m", n, k, time.Millisecond))}})
		}
		if judge(k).Action == Rollback && judge(more).Action != Rollback {
			t.Fatalf("%d faults of %d end the rollout, and %d do not", k, n, more)
		}
		if float64(k) <= 0.03*float64(n) && judge(k).Action == Rollback {
			t.Fatalf("%d faults of %d are within the limit and end the rollout", k, n)
		}
	})
}

func TestQuantileLiesInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var times capacity.TTFTHistogram
		d := time.Duration(rapid.IntRange(1, 50_000).Draw(t, "ms")) * time.Millisecond
		i := capacity.TTFTBucket(d)
		times[i] = rapid.Int64Range(1, 1000).Draw(t, "count")
		for _, q := range quantilesByName {
			got := histogramQuantile(&times, q)
			if got > capacity.TTFTBound(i) || i > 0 && got < capacity.TTFTBound(i-1) {
				t.Fatalf("the quantile of %s is %s", d, got)
			}
		}
	})
}

func TestMistakesInConditions(t *testing.T) {
	for _, text := range []string{
		"error_rate", "error_rate<", "error_rate<2", "error_rate<-1%", "error_rate<100%", "error_rate<NaN%", "ttft_p99<2", "ttft_p99<2m", "ttft_p99<0x", "ttft_p99<Infx",
		"ttft_p98<1s", "requests>=0", "requests>=x", "latency>=3", "error_rate<2%,,", "error_rate<2%,error_rate<3%", "error_rate>2%",
	} {
		if g, err := ParseConditions(text); err == nil || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("%q is read as %v, %v: a hint is missing", text, g, err)
		}
	}
}

func FuzzParseConditions(f *testing.F) {
	for _, text := range []string{"", "error_rate<2%,ttft_p99<1.5x", "refused_rate<0.5%, requests>=9", "ttft_p50<300ms,ttft_p50<2x", "x<1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseConditions(text)
		if err != nil {
			return
		}
		again, err := ParseConditions(g.String())
		if err != nil || again.String() != g.String() || again.MinRequests != g.MinRequests || len(again.Rules) != len(g.Rules) {
			t.Fatalf("%q reads as %q, which reads as %q, %v", text, g, again, err)
		}
	})
}
