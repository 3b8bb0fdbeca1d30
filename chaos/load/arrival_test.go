package load

import (
	"bytes"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newTestPoisson(t testing.TB, p PoissonConfig) ArrivalSource {
	t.Helper()
	s, err := NewPoissonSource(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPoissonFollowsItsRateAndLengths(t *testing.T) {
	list := readAllArrivals(t, newTestPoisson(t, PoissonConfig{
		Rate: 50, For: 200 * time.Second, Seed: 3, Groups: 4, PrefixTokens: 100,
		Prompt: LengthDist{Median: 1000, P90: 2000}, Output: LengthDist{Median: 64},
	}))
	if !isNear(float64(len(list)), 10_000, 0.05) {
		t.Errorf("%d arrivals in 200 s at 50/s", len(list))
	}
	var gaps, squares float64
	prefixes := map[uint64]bool{}
	over := 0
	for i, a := range list {
		if i > 0 {
			gap := (a.At - list[i-1].At).Seconds()
			gaps += gap
			squares += gap * gap
		}
		if a.Output != 64 {
			t.Fatalf("output %d, want always 64", a.Output)
		}
		prefixes[a.Prompt[0].ID] = true
		if a.PromptTokens() > 2000 {
			over++
		}
	}
	n := float64(len(list) - 1)
	if cv := math.Sqrt(squares/n-(gaps/n)*(gaps/n)) / (gaps / n); !isNear(cv, 1, 0.05) {
		t.Errorf("coefficient of variation %.3f, want 1", cv)
	}
	if !isNear(float64(over)/n, 0.10, 0.15) {
		t.Errorf("%d of %d prompts are longer than the 90th percentile", over, len(list))
	}
	if len(prefixes) != 4 {
		t.Errorf("%d shared prefixes, want 4", len(prefixes))
	}
}

func TestPoissonRejectsBadConfig(t *testing.T) {
	ok := PoissonConfig{Rate: 1, Prompt: LengthDist{Median: 1}, Output: LengthDist{Median: 1}}
	for _, change := range []func(*PoissonConfig){
		func(p *PoissonConfig) { p.Rate = 0 },
		func(p *PoissonConfig) { p.Rate = math.NaN() },
		func(p *PoissonConfig) { p.Prompt.Median = 0 },
		func(p *PoissonConfig) { p.Output.Median = 0 },
		func(p *PoissonConfig) { p.Groups = -1 },
	} {
		p := ok
		change(&p)
		if _, err := NewPoissonSource(p); err == nil {
			t.Errorf("%+v: accepted", p)
		}
	}
}

func TestScaleSourceScalesRateAndTokens(t *testing.T) {
	source := func() ArrivalSource { return ScaleSource(openTrace(t, "testdata/azure.csv", 1), Scale{}) }
	plain := readAllArrivals(t, source())
	fast := readAllArrivals(t, ScaleSource(source(), Scale{Rate: 4, Tokens: 0.5, MaxPrompt: 500, MaxOutput: 50}))
	if len(fast) != len(plain) {
		t.Fatalf("%d arrivals, want %d", len(fast), len(plain))
	}
	for i := range fast {
		if fast[i].At != plain[i].At/4 {
			t.Errorf("arrival %d at %v, want %v", i, fast[i].At, plain[i].At/4)
		}
		half := int(math.Round(float64(plain[i].PromptTokens()) / 2))
		if got, want := fast[i].PromptTokens(), min(half, 500); got != want {
			t.Errorf("prompt %d of %d tokens, want %d", i, got, want)
		}
		if fast[i].Output > 50 {
			t.Errorf("output %d of %d tokens", i, fast[i].Output)
		}
	}
	short := readAllArrivals(t, ScaleSource(source(), Scale{Rate: 2, For: 5 * time.Second}))
	if n := len(short); n == 0 || n == len(plain) || short[n-1].At > 5*time.Second || plain[n].At <= 10*time.Second {
		t.Errorf("%d arrivals in the first 5 s at double rate", n)
	}
}

func TestTextFollowsPromptPieces(t *testing.T) {
	short, long := appendPiece(nil, Piece{ID: 7, Tokens: 10}), appendPiece(nil, Piece{ID: 7, Tokens: 20})
	if len(short) != 40 || !bytes.HasPrefix(long, short) {
		t.Errorf("%q is no prefix of %q", short, long)
	}
	if bytes.Equal(short, appendPiece(nil, Piece{ID: 8, Tokens: 10})) {
		t.Error("two pieces, one text")
	}
}

func TestHistogramQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h latencyHistogram
		us := rapid.SliceOfN(rapid.Int64Range(0, 3_600_000_000), 1, 200).Draw(t, "us")
		for _, v := range us {
			h.addDuration(time.Duration(v) * time.Microsecond)
		}
		sorted := append([]int64(nil), us...)
		for i := range sorted {
			for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
				sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
			}
		}
		parts := []float64{0.5, 0.9, 0.99, 1}
		for i, got := range h.readQuantiles(parts...) {
			want := float64(sorted[int(math.Ceil(parts[i]*float64(len(sorted))))-1])
			if math.Abs(float64(got/time.Microsecond)-want) > want*0.032+1 {
				t.Fatalf("quantile %v of %d values: %v, want %v us", parts[i], len(us), got, want)
			}
		}
		if h.totalCount() != uint64(len(us)) {
			t.Fatalf("counted %d of %d", h.totalCount(), len(us))
		}
	})
}

func TestHistogramAcceptsAnyDuration(t *testing.T) {
	var h latencyHistogram
	h.addDuration(-time.Second)
	h.addDuration(math.MaxInt64)
	if q := h.readQuantiles(0.25, 1); h.totalCount() != 2 || q[0] != 0 || q[1] <= time.Hour {
		t.Errorf("%d, %v", h.totalCount(), q)
	}
	if q := new(latencyHistogram).readQuantiles(0.5); q[0] != 0 {
		t.Errorf("an empty histogram says %v", q)
	}
}
