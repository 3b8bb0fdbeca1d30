package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDistributionSurvivesEncoding: an encoded and decoded distribution is unchanged.
func TestDistributionSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d, back Distribution
		for _, us := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 50).Draw(t, "times") {
			d.addValue(time.Duration(us) * time.Microsecond)
		}
		b, err := d.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if d.String() != back.String() || d.ShareAtMost(time.Second) != back.ShareAtMost(time.Second) {
			t.Fatalf("%s became %s", d.String(), back.String())
		}
	})
}

// FuzzDecodeDistribution: no bytes make the decoder panic, and what it accepts is consistent.
func FuzzDecodeDistribution(f *testing.F) {
	var d Distribution
	d.addValue(time.Millisecond)
	d.addValue(time.Minute)
	b, _ := d.MarshalBinary()
	f.Add(b)
	f.Add([]byte{2, 0, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Distribution
		if d.UnmarshalBinary(b) != nil {
			return
		}
		if share := d.ShareAtMost(1 << 62); d.Count() > 0 && share != 1 {
			t.Fatalf("%v of the values are at most endless", share)
		}
		_ = d.String()
	})
}
