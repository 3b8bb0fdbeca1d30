package capacity

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestPatchedDeltaEqualsWholeDelta: a delta with patches gives, over the wire too, what one without gives.
func TestPatchedDeltaEqualsWholeDelta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		for i := range next.Models { // often only amounts differ
			if old := base.FindModel(next.Models[i].Name); old != nil && rapid.Bool().Draw(t, "same hardware") {
				next.Models[i].Hardware, next.Models[i].Prefixes = old.Hardware, old.Prefixes
			}
		}
		d := DiffSummaries(&base, &next)
		changes := d.Len()
		d.CompactChanges(&base)
		if d.Len() != changes {
			t.Fatalf("%d changes became %d", changes, d.Len())
		}
		b, err := EncodeDelta(&d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDelta(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.CheckAgainst(&base); err != nil {
			t.Fatal(err)
		}
		before := cloneSummary(base)
		if got := back.ApplyTo(&base); !got.Equal(next) {
			t.Fatalf("got  %+v\nwant %+v", got, next)
		}
		held := base
		n := rapid.IntRange(1, max(1, d.Len())).Draw(t, "n")
		for from := 0; from < d.Len(); from += n {
			p := d.TakePart(from, n)
			held = p.OverlayOn(&base, &held)
		}
		if d.Len() > 0 && !held.Equal(next) {
			t.Fatalf("in parts of %d\ngot  %+v\nwant %+v", n, held, next)
		}
		if !base.Equal(before) {
			t.Fatal("the snapshot was changed")
		}
	})
}

// TestTwentyPatchedModelsFitDatagram: twenty busy models fit a datagram, where whole ones would not.
func TestTwentyPatchedModelsFitDatagram(t *testing.T) {
	base, next := busySummary(20), busySummary(20)
	for i := range next.Models {
		m := next.Models[i]
		m.Running, m.Backlog, m.KVFree, m.SlotsFree = m.Running+5, m.Backlog+9999, m.KVFree/2, m.SlotsFree/2
		m.WorkAhead, m.Headroom = [3]int64{80_000, 90_000, 150_000}, [3]int64{80_000, 90_000, 150_000}
	}
	d := DiffSummaries(&base, &next)
	d.CompactChanges(&base)
	b, err := EncodeDelta(&d)
	if err != nil || len(b) > 1100 || len(d.ChangedModels) > 0 {
		t.Fatalf("%d bytes, %d whole models, %v", len(b), len(d.ChangedModels), err)
	}
}

func TestMismatchedPatchesAreRefused(t *testing.T) {
	base := Summary{Models: []*ModelCapacity{{Name: "m", Total: 4, Ready: 4}}}
	for name, p := range map[string]ModelPatch{
		"beyond the last":  {ModelIndex: 1, Mask: 1, Values: []int64{1}},
		"more than whole":  {ModelIndex: 0, Mask: 1, Values: []int64{5}},
		"no amount":        {ModelIndex: 0},
		"unknown amount":   {ModelIndex: 0, Mask: 1 << 21, Values: []int64{1}},
		"too few values":   {ModelIndex: 0, Mask: 3, Values: []int64{1}},
		"a negative value": {ModelIndex: 0, Mask: 1, Values: []int64{-1}},
	} {
		d := SummaryDelta{Patches: []ModelPatch{p}}
		if d.checkDelta() == nil && d.CheckAgainst(&base) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	two := SummaryDelta{Patches: []ModelPatch{{ModelIndex: 0, Mask: 1, Values: []int64{1}}, {ModelIndex: 0, Mask: 1, Values: []int64{2}}}}
	if two.checkDelta() == nil {
		t.Error("two patches of one model are taken")
	}
}

// TestEstimatedSizeIsUpperBound: what is said to fit without being encoded does.
func TestEstimatedSizeIsUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSummary(t)
		b, err := EncodeSummary(&s)
		if err != nil {
			t.Fatal(err)
		}
		if s.estimateSize() < len(b) {
			t.Fatalf("%d bytes, said to be at most %d", len(b), s.estimateSize())
		}
	})
	most := Summary{}
	for i := range MaxModels {
		m := &ModelCapacity{Name: fmt.Sprintf("%03d%0250d", i, i)}
		for _, n := range m.patchAmountFields() {
			*n = MaxAmount
		}
		most.Models = append(most.Models, m)
	}
	if most = FitToLimits(most); len(most.Models) == 0 {
		t.Fatal("nothing left")
	}
	if _, err := EncodeSummary(&most); err != nil {
		t.Fatal(err)
	}
}

// TestDeltaCopiesOnlyPatchedModels: a parent of many children keeps one copy of a model that does not change.
func TestDeltaCopiesOnlyPatchedModels(t *testing.T) {
	base, next := busySummary(100), busySummary(100)
	next.Seq++
	for _, m := range next.Models[:10] {
		m.Backlog++
	}
	d := DiffSummaries(&base, &next)
	d.CompactChanges(&base)
	s := d.ApplyTo(&base)
	if !s.Equal(next) {
		t.Fatal("the delta does not give the summary")
	}
	for i := range s.Models {
		if shared := s.Models[i] == base.Models[i]; shared != (i >= 10) {
			t.Errorf("model %d is shared with the snapshot: %v", i, shared)
		}
	}
	if n := testing.AllocsPerRun(100, func() { s = d.ApplyTo(&base) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
