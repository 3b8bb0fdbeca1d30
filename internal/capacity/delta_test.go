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
		if old := base.FindModel(next.Models[i].Name); old != nil && rapid.Bool().Draw(t, "same sketch") {
			next.Models[i].Prefixes = old.Prefixes
		}
	}
	return base, next
}

func TestAppliedDiffGivesTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		d := DiffSummaries(&base, &next)
		if got := d.ApplyTo(&base); !got.Equal(next) {
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
		if got := back.ApplyTo(&base); !got.Equal(next) || back.BaseSeq != base.Seq {
			t.Fatalf("over the wire\ngot  %+v\nwant %+v", got, next)
		}
	})
}

// TestPartialDeltasReachTarget overlays successive parts, growing from, and must come to the whole in one round.
func TestPartialDeltasReachTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		d := DiffSummaries(&base, &next)
		if d.Len() == 0 {
			return
		}
		n := rapid.IntRange(1, d.Len()).Draw(t, "n")
		held := base
		for from := 0; from < d.Len(); from += n {
			p := d.TakePart(from, n)
			if p.Len() > n || p.IsPartial == (n == d.Len()) {
				t.Fatalf("part of %d in %d: %d, partial %v", n, d.Len(), p.Len(), p.IsPartial)
			}
			b, err := EncodeDelta(&p)
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeDelta(b)
			if err != nil {
				t.Fatal(err)
			}
			held = back.OverlayOn(&base, &held)
		}
		if !held.Equal(next) {
			t.Fatalf("got  %+v\nwant %+v", held, next)
		}
	})
}

// TestDeltaFitsADatagram holds what the uplink counts on: two busy models whose sketches changed fit 1,100 bytes.
func TestDeltaFitsADatagram(t *testing.T) {
	next := busySummary(2)
	d := DiffSummaries(&Summary{}, &next)
	b, err := EncodeDelta(&d)
	if err != nil || len(b) > 1100 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	base := busySummary(16)
	next = busySummary(16)
	for i := range next.Models {
		next.Models[i].Backlog++
	}
	d = DiffSummaries(&base, &next)
	if b, err = EncodeDelta(&d); err != nil || len(b) > 1500 {
		t.Fatalf("16 models whose load changed: %d bytes, %v", len(b), err)
	}
}

func TestInvalidDeltasAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*SummaryDelta){
		"head with models":   func(d *SummaryDelta) { d.Head.Models = []*ModelCapacity{{Name: "m"}} },
		"prefixes and same":  func(d *SummaryDelta) { d.ChangedModels[0].PrefixesUnchanged = true },
		"disorder":           func(d *SummaryDelta) { d.ChangedModels = append(d.ChangedModels, d.ChangedModels[0]) },
		"removed disorder":   func(d *SummaryDelta) { d.RemovedModels = []string{"b", "a"} },
		"removed rtts":       func(d *SummaryDelta) { d.RemovedRTTs = []string{"b", "a"} },
		"removed outcomes":   func(d *SummaryDelta) { d.RemovedOutcomes = []OutcomeCounts{{Model: "b"}, {Model: "a"}} },
		"head with outcomes": func(d *SummaryDelta) { d.Head.Outcomes = []OutcomeCounts{{Model: "m"}} },
		"head with networks": func(d *SummaryDelta) { d.Head.Networks = []ClientNetwork{{Number: 1}} },
		"removed networks":   func(d *SummaryDelta) { d.RemovedNetworks = []ClientNetwork{{Number: 2}, {Number: 1}} },
		"head with rtts":     func(d *SummaryDelta) { d.Head.RTTs = []CellRTT{{Cell: "c"}} },
		"negative":           func(d *SummaryDelta) { d.ChangedModels[0].Model.Ready = -1 },
	} {
		next := busySummary(1)
		d := DiffSummaries(&Summary{}, &next)
		spoil(&d)
		if _, err := EncodeDelta(&d); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func FuzzDecodeDelta(f *testing.F) {
	base, next := busySummary(3), busySummary(4)
	next.Models[1].Backlog = 5
	next.Models = next.Models[1:]
	next.Demand = []CellDemand{{Service: "s", Cell: "c", TokensPerSec: 1}}
	next.RTTs = []CellRTT{{Cell: "c", Samples: 3, TotalMicros: 9000, AgeSec: 1}}
	d := DiffSummaries(&base, &next)
	b, err := EncodeDelta(&d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	d.CompactChanges(&base)
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
		if d.CheckAgainst(&base) != nil {
			return
		}
		s := d.OverlayOn(&base, &next)
		s.Path = base.Path
		if err := s.checkLimits(); err != nil {
			t.Fatalf("overlay is unlawful: %v", err)
		}
	})
}
