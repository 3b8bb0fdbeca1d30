package capacity

import (
	"testing"

	"pgregory.net/rapid"
)

// genPair draws two statements of one instance.
func genPair(t *rapid.T) (base, next Summary) {
	base, next = genSummary(t), genSummary(t)
	next.Path, next.Boot, next.Seq = base.Path, base.Boot, base.Seq+1
	for i := range next.Models { // often nothing but the load changes
		if old := base.Model(next.Models[i].Name); old != nil && rapid.Bool().Draw(t, "same sketch") {
			next.Models[i].Prefixes = old.Prefixes
		}
	}
	return base, next
}

func TestDiffApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		d := Diff(&base, &next)
		if got := d.Apply(&base); !got.Equal(next) {
			t.Fatalf("got  %+v\nwant %+v", got, next)
		}
		b, err := EncodeDelta(&d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDelta(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := back.Apply(&base); !got.Equal(next) || back.BaseSeq != base.Seq {
			t.Fatalf("over the wire\ngot  %+v\nwant %+v", got, next)
		}
	})
}

// TestPartsReachTheWhole overlays successive parts, growing from, and must come to the whole in one round.
func TestPartsReachTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		d := Diff(&base, &next)
		if d.Len() == 0 {
			return
		}
		n := rapid.IntRange(1, d.Len()).Draw(t, "n")
		held := base
		for from := 0; from < d.Len(); from += n {
			p := d.Part(from, n)
			if p.Len() > n || p.Partial == (n == d.Len()) {
				t.Fatalf("part of %d in %d: %d, partial %v", n, d.Len(), p.Len(), p.Partial)
			}
			b, err := EncodeDelta(&p)
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeDelta(b)
			if err != nil {
				t.Fatal(err)
			}
			held = back.Overlay(&base, &held)
		}
		if !held.Equal(next) {
			t.Fatalf("got  %+v\nwant %+v", held, next)
		}
	})
}

// TestDeltaFitsADatagram holds what the uplink counts on: two busy models whose sketches changed fit 1,100 bytes.
func TestDeltaFitsADatagram(t *testing.T) {
	next := busy(2)
	d := Diff(&Summary{}, &next)
	b, err := EncodeDelta(&d)
	if err != nil || len(b) > 1100 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	base := busy(16)
	next = busy(16)
	for i := range next.Models {
		next.Models[i].Backlog++
	}
	d = Diff(&base, &next)
	if b, err = EncodeDelta(&d); err != nil || len(b) > 1500 {
		t.Fatalf("16 models whose load changed: %d bytes, %v", len(b), err)
	}
}

func TestDeltaRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Delta){
		"head with models":   func(d *Delta) { d.Head.Models = []Model{{Name: "m"}} },
		"prefixes and same":  func(d *Delta) { d.Changed[0].SamePrefixes = true },
		"disorder":           func(d *Delta) { d.Changed = append(d.Changed, d.Changed[0]) },
		"removed disorder":   func(d *Delta) { d.Removed = []string{"b", "a"} },
		"removed rtts":       func(d *Delta) { d.RemovedRTTs = []string{"b", "a"} },
		"removed outcomes":   func(d *Delta) { d.RemovedOutcomes = []Outcome{{Model: "b"}, {Model: "a"}} },
		"head with outcomes": func(d *Delta) { d.Head.Outcomes = []Outcome{{Model: "m"}} },
		"head with networks": func(d *Delta) { d.Head.Networks = []Network{{Number: 1}} },
		"removed networks":   func(d *Delta) { d.RemovedNetworks = []Network{{Number: 2}, {Number: 1}} },
		"head with rtts":     func(d *Delta) { d.Head.RTTs = []RTT{{Cell: "c"}} },
		"negative":           func(d *Delta) { d.Changed[0].Model.Ready = -1 },
	} {
		next := busy(1)
		d := Diff(&Summary{}, &next)
		spoil(&d)
		if _, err := EncodeDelta(&d); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func FuzzDecodeDelta(f *testing.F) {
	base, next := busy(3), busy(4)
	next.Models[1].Backlog = 5
	next.Models = next.Models[1:]
	next.Demand = []Demand{{Service: "s", Cell: "c", TokensPerSec: 1}}
	next.RTTs = []RTT{{Cell: "c", Samples: 3, TotalMicros: 9000, AgeSec: 1}}
	d := Diff(&base, &next)
	b, err := EncodeDelta(&d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	d.Compact(&base)
	if b, err = EncodeDelta(&d); err != nil || len(d.Patches) == 0 {
		f.Fatal("no patches", err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDelta(b)
		if err != nil {
			return
		}
		if _, err := EncodeDelta(d); err != nil {
			t.Fatalf("decoded but cannot be encoded: %v", err)
		}
		if d.Fits(&base) != nil {
			return
		}
		s := d.Overlay(&base, &next)
		s.Path = base.Path
		if err := s.check(); err != nil {
			t.Fatalf("overlay is unlawful: %v", err)
		}
	})
}
