package stage

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const number7 = 7

func mustParse(t rapid.TB, text string) Guard {
	t.Helper()
	g, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// outcome is requests of which some are faults, each first byte after ttft.
func outcome(stage uint64, model string, requests, faults int64, ttft time.Duration) capacity.Outcome {
	o := capacity.Outcome{Stage: stage, Service: "chat.", Model: model, Requests: requests, Faults: faults}
	o.TTFT[capacity.TTFTBucket(ttft)] = requests - faults
	return o
}

func region(name string, os ...capacity.Outcome) Region {
	return Region{Name: name, Heard: true, Outcomes: os}
}

func TestDecide(t *testing.T) {
	const fast, slow = 100 * time.Millisecond, 400 * time.Millisecond
	good := outcome(number7, "m", 1000, 1, fast)
	usual := outcome(0, "m", 1000, 1, fast)
	for name, c := range map[string]struct {
		guard string
		in    Input
		want  Action
		why   string
	}{
		"under way":        {"error_rate<2%", Input{Trial: []Region{region("eu", good)}, Elapsed: time.Second}, Wait, "1s of 1m0s"},
		"window over":      {"error_rate<2%", Input{Trial: []Region{region("eu", good)}, Elapsed: time.Minute}, Promote, "without a breach"},
		"no guard":         {"", Input{Trial: []Region{region("eu")}, Elapsed: time.Minute}, Promote, ""},
		"errors":           {"error_rate<2%", Input{Trial: []Region{region("eu", outcome(number7, "m", 100, 12, fast))}}, Rollback, "eu: error_rate is 12% of 100 requests, limit 2%"},
		"bad luck":         {"error_rate<2%", Input{Trial: []Region{region("eu", outcome(number7, "m", 50, 2, fast))}, Elapsed: time.Hour}, Wait, "may be chance"},
		"all of a few":     {"error_rate<2%", Input{Trial: []Region{region("eu", outcome(number7, "m", 49, 49, fast))}, Elapsed: time.Hour}, Wait, "too few"},
		"fewer are enough": {"error_rate<2%,requests>=10", Input{Trial: []Region{region("eu", outcome(number7, "m", 10, 10, fast))}}, Rollback, ""},
		"silent, window over": {
			"error_rate<2%",
			Input{Trial: []Region{{Name: "eu", Outcomes: []capacity.Outcome{good}}}, Elapsed: time.Hour},
			Wait, "not heard",
		},
		"one of two is silent": {"error_rate<2%", Input{Trial: []Region{region("eu", good), {Name: "us"}}, Elapsed: time.Hour}, Wait, "not heard"},
		"one of two is idle":   {"error_rate<2%", Input{Trial: []Region{region("eu", good), region("us")}, Elapsed: time.Hour}, Wait, "us: error_rate"},
		"a small model breaks": {
			"error_rate<5%",
			Input{Trial: []Region{region("eu", outcome(number7, "big", 10_000, 0, fast), outcome(number7, "small", 60, 60, fast))}},
			Rollback, "eu small of chat.: error_rate is 100% of 60",
		},
		"errors of before the stage are not its own": {
			"error_rate<2%",
			Input{Trial: []Region{region("eu", outcome(0, "m", 1000, 900, fast), good)}, Elapsed: time.Minute},
			Promote, "",
		},
		"slower than before": {"ttft_p99<1.5x", Input{Trial: []Region{region("eu", usual, outcome(number7, "m", 1000, 0, slow))}}, Rollback, "(1.5x)"},
		"slow everywhere": {
			"ttft_p99<1.5x",
			Input{Trial: []Region{region("eu", usual, outcome(number7, "m", 1000, 0, slow))}, Others: []Region{region("us", outcome(number7, "m", 1000, 0, slow))}, Elapsed: time.Minute},
			Promote, "",
		},
		"always slower than the others": {
			"ttft_p99<1.5x",
			Input{Trial: []Region{region("eu", outcome(0, "m", 1000, 0, slow), outcome(number7, "m", 1000, 0, slow))}, Others: []Region{region("us", outcome(number7, "m", 1000, 0, fast))}, Elapsed: time.Minute},
			Promote, "",
		},
		"nothing to compare with": {"ttft_p99<1.5x", Input{Trial: []Region{region("eu", outcome(number7, "m", 1000, 0, slow))}, Elapsed: time.Hour}, Wait, "nothing to compare with"},
		"seconds":                 {"ttft_p50<300ms", Input{Trial: []Region{region("eu", outcome(number7, "m", 1000, 0, slow))}}, Rollback, "ttft_p50 is"},
		"p99 of 60":               {"ttft_p99<300ms", Input{Trial: []Region{region("eu", outcome(number7, "m", 60, 0, slow))}}, Wait, ""},
		"one error where none was": {
			"error_rate<1.5x",
			Input{Trial: []Region{region("eu", outcome(0, "m", 200, 0, fast), outcome(number7, "m", 200, 1, fast))}},
			Wait, "",
		},
		"refusals": {
			"refused_rate<5%",
			Input{Trial: []Region{region("eu", capacity.Outcome{Stage: number7, Requests: 100, Refused: 60})}},
			Rollback, "refused_rate is 60%",
		},
		"everywhere, one region lost": {
			"error_rate<2%",
			Input{Trial: []Region{region("eu", good), {Name: "us"}}, Everywhere: true, Elapsed: time.Minute},
			Promote, "",
		},
		"everywhere, one region breaks": {
			"error_rate<2%",
			Input{Trial: []Region{region("eu", outcome(number7, "m", 1_000_000, 0, fast)), region("us", outcome(number7, "m", 100, 50, fast))}, Everywhere: true},
			Rollback, "us: error_rate is 50%",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in
			in.Guard, in.Number, in.Window = mustParse(t, c.guard), number7, time.Minute
			v := Decide(&in)
			if v.Action != c.want || !strings.Contains(v.Why, c.why) {
				t.Errorf("%s because %q, want %s because %q\n%s", v.Action, v.Why, c.want, c.why, v.Report())
			}
		})
	}
}

func TestWithoutWindowOnlyABreachEndsIt(t *testing.T) {
	in := Input{Guard: mustParse(t, "error_rate<2%"), Number: number7, Trial: []Region{region("eu", outcome(number7, "m", 1000, 0, 1))}, Elapsed: 1000 * time.Hour}
	if v := Decide(&in); v.Action != Wait {
		t.Errorf("%s: %s", v.Action, v.Why)
	}
	in.Trial = []Region{region("eu", outcome(number7, "m", 1000, 500, 1))}
	if v := Decide(&in); v.Action != Rollback {
		t.Errorf("%s: %s", v.Action, v.Why)
	}
}

func drawRegion(t *rapid.T, name string) Region {
	r := Region{Name: name, Heard: rapid.Bool().Draw(t, "heard")}
	for _, stage := range []uint64{0, number7} {
		for _, model := range []string{"a", "b"} {
			n := rapid.Int64Range(0, 400).Draw(t, "requests")
			o := outcome(stage, model, n, rapid.Int64Range(0, n).Draw(t, "faults"), time.Duration(rapid.IntRange(1, 2000).Draw(t, "ttft"))*time.Millisecond)
			r.Outcomes = append(r.Outcomes, o)
		}
	}
	return r
}

// TestDecidesWithoutDataNothing: whatever else is known, without the least sample nothing is promoted or taken back, a
// breach is never promoted, and nothing is promoted before its time or out of silence.
func TestDecidesWithoutDataNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Guard:  Guard{Min: rapid.Int64Range(1, 200).Draw(t, "min")},
			Number: number7, Window: time.Minute, Elapsed: time.Duration(rapid.IntRange(0, 120).Draw(t, "elapsed")) * time.Second,
			Trial: []Region{drawRegion(t, "eu")}, Others: []Region{drawRegion(t, "us")}, Everywhere: rapid.Bool().Draw(t, "everywhere"),
		}
		for _, text := range []string{"error_rate<2%", "ttft_p90<1.5x", "error_rate<2x", "ttft_p50<500ms"} {
			if rapid.Bool().Draw(t, text) {
				in.Guard.Rules = append(in.Guard.Rules, mustParse(t, text).Rules...)
			}
		}
		v := Decide(&in)
		if again := Decide(&in); again.Action != v.Action || again.Why != v.Why {
			t.Fatal("the same figures are judged in two ways")
		}
		worst := int64(0)
		for _, f := range v.Findings {
			if f.standing == breached && f.Sample < in.Guard.Min {
				t.Fatalf("a breach on %d requests", f.Sample)
			}
			if f.standing == breached {
				worst++
			}
			if v.Action == Promote && f.total && f.Sample < in.Guard.Min {
				t.Fatalf("promoted on %d requests", f.Sample)
			}
		}
		if (v.Action == Rollback) != (worst > 0) {
			t.Fatalf("%s with %d breaches", v.Action, worst)
		}
		if v.Action == Promote && (!v.Counts || in.Elapsed < in.Window) {
			t.Fatalf("promoted after %s, counting: %v", in.Elapsed, v.Counts)
		}
	})
}

// TestMoreErrorsAreNeverBetter: what is rolled back stays so when more of the same requests fail.
func TestMoreErrorsAreNeverBetter(t *testing.T) {
	g := mustParse(t, "error_rate<3%")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 3000).Draw(t, "requests")
		k := rapid.Int64Range(0, n).Draw(t, "faults")
		more := rapid.Int64Range(k, n).Draw(t, "more")
		judge := func(k int64) Verdict {
			return Decide(&Input{Guard: g, Number: number7, Window: time.Minute, Trial: []Region{region("eu", outcome(number7, "m", n, k, time.Millisecond))}})
		}
		if judge(k).Action == Rollback && judge(more).Action != Rollback {
			t.Fatalf("%d faults of %d end the trial, and %d do not", k, n, more)
		}
		if float64(k) <= 0.03*float64(n) && judge(k).Action == Rollback {
			t.Fatalf("%d faults of %d are within the limit and end the trial", k, n)
		}
	})
}

func TestQuantileLiesInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var times capacity.Times
		d := time.Duration(rapid.IntRange(1, 50_000).Draw(t, "ms")) * time.Millisecond
		i := capacity.TTFTBucket(d)
		times[i] = rapid.Int64Range(1, 1000).Draw(t, "count")
		for _, q := range quantiles {
			got := quantile(&times, q)
			if got > capacity.TTFTBound(i) || i > 0 && got < capacity.TTFTBound(i-1) {
				t.Fatalf("the quantile of %s is %s", d, got)
			}
		}
	})
}

func TestGuardMistakes(t *testing.T) {
	for _, text := range []string{
		"error_rate", "error_rate<", "error_rate<2", "error_rate<-1%", "error_rate<100%", "error_rate<NaN%", "ttft_p99<2", "ttft_p99<2m", "ttft_p99<0x", "ttft_p99<Infx",
		"ttft_p98<1s", "requests>=0", "requests>=x", "latency>=3", "error_rate<2%,,", "error_rate<2%,error_rate<3%", "error_rate>2%",
	} {
		if g, err := Parse(text); err == nil || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("%q is read as %v, %v: a hint is missing", text, g, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "error_rate<2%,ttft_p99<1.5x", "refused_rate<0.5%, requests>=9", "ttft_p50<300ms,ttft_p50<2x", "x<1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(g.String())
		if err != nil || again.String() != g.String() || again.Min != g.Min || len(again.Rules) != len(g.Rules) {
			t.Fatalf("%q reads as %q, which reads as %q, %v", text, g, again, err)
		}
	})
}
