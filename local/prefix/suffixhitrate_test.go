package prefix

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSuffixHitRateIsLearned(t *testing.T) {
	var none *SuffixHitRate
	if none.HitRate(true) != 0 {
		t.Fatal("the hit rate is above 0 without observations")
	}
	var o SuffixHitRate
	for range 300 {
		o.LearnSuffix(true, 1000, 1400, 1500)  // the answer is cached too
		o.LearnSuffix(false, 4000, 4000, 5000) // nothing is cached after a shared prefix
		o.LearnSuffix(true, 1000, 100, 1500)   // a prefix that was evicted does not count
		o.LearnSuffix(true, 1000, 1010, 1010)  // nor does a prompt without a rest
	}
	if a, b := o.HitRate(true), o.HitRate(false); math.Abs(a-0.8) > 1e-6 || b != 0 {
		t.Fatalf("hit rate %v after a prefix with one holder, %v after one with several", a, b)
	}
	for range 500 {
		o.LearnSuffix(true, 1000, 1000, 1500) // the hit rate falls
	}
	if a := o.HitRate(true); a > 0.02 {
		t.Fatalf("the hit rate is still %v", a)
	}
}

func TestSuffixHitRateStaysBetweenZeroAndOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o SuffixHitRate
		number := rapid.Int64Range(-1<<50, 1<<50)
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			o.LearnSuffix(rapid.Bool().Draw(t, "alone"), number.Draw(t, "known"), number.Draw(t, "cached"), number.Draw(t, "prompt"))
			for _, alone := range []bool{false, true} {
				if p := o.HitRate(alone); !(p >= 0 && p <= 1) {
					t.Fatalf("the hit rate is %v", p)
				}
			}
		}
	})
}
