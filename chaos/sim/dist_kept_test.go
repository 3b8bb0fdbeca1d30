package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestKeptDist: a distribution that was written and read is the same one.
func TestKeptDist(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d, back Dist
		for _, us := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 50).Draw(t, "times") {
			d.add(time.Duration(us) * time.Microsecond)
		}
		b, err := d.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if d.String() != back.String() || d.Share(time.Second) != back.Share(time.Second) {
			t.Fatalf("%s became %s", d.String(), back.String())
		}
	})
}

// FuzzKeptDist: no bytes break the reader, and what it takes adds up.
func FuzzKeptDist(f *testing.F) {
	var d Dist
	d.add(time.Millisecond)
	d.add(time.Minute)
	b, _ := d.MarshalBinary()
	f.Add(b)
	f.Add([]byte{2, 0, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Dist
		if d.UnmarshalBinary(b) != nil {
			return
		}
		if share := d.Share(1 << 62); d.Count() > 0 && share != 1 {
			t.Fatalf("%v of the values are at most endless", share)
		}
		_ = d.String()
	})
}
