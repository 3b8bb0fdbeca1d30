package capacity

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestPatchesSayTheSame: a delta with patches gives, over the wire too, what one without gives.
func TestPatchesSayTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, next := genPair(t)
		for i := range next.Models { // often only amounts differ
			if old := base.Model(next.Models[i].Name); old != nil && rapid.Bool().Draw(t, "same hardware") {
				next.Models[i].Hardware, next.Models[i].Prefixes = old.Hardware, old.Prefixes
			}
		}
		d := Diff(&base, &next)
		changes := d.Len()
		d.Compact(&base)
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
		if err := back.Fits(&base); err != nil {
			t.Fatal(err)
		}
		before := copied(base)
		if got := back.Apply(&base); !got.Equal(next) {
			t.Fatalf("got  %+v\nwant %+v", got, next)
		}
		held := base
		n := rapid.IntRange(1, max(1, d.Len())).Draw(t, "n")
		for from := 0; from < d.Len(); from += n {
			p := d.Part(from, n)
			held = p.Overlay(&base, &held)
		}
		if d.Len() > 0 && !held.Equal(next) {
			t.Fatalf("in parts of %d\ngot  %+v\nwant %+v", n, held, next)
		}
		if !base.Equal(before) {
			t.Fatal("the snapshot was changed")
		}
	})
}

// TestPatchesAreSmall: twenty busy models fit a datagram, where whole ones would not.
func TestPatchesAreSmall(t *testing.T) {
	base, next := busy(20), busy(20)
	for i := range next.Models {
		m := &next.Models[i]
		m.Running, m.Backlog, m.KVFree, m.SlotsFree = m.Running+5, m.Backlog+9999, m.KVFree/2, m.SlotsFree/2
		m.Ahead, m.Headroom = [3]int64{80_000, 90_000, 150_000}, [3]int64{80_000, 90_000, 150_000}
	}
	d := Diff(&base, &next)
	d.Compact(&base)
	b, err := EncodeDelta(&d)
	if err != nil || len(b) > 1100 || len(d.Changed) > 0 {
		t.Fatalf("%d bytes, %d whole models, %v", len(b), len(d.Changed), err)
	}
}

func TestPatchesThatFitNothing(t *testing.T) {
	base := Summary{Models: []Model{{Name: "m", Total: 4, Ready: 4}}}
	for name, p := range map[string]Patch{
		"beyond the last":  {At: 1, Mask: 1, Values: []int64{1}},
		"more than whole":  {At: 0, Mask: 1, Values: []int64{5}},
		"no amount":        {At: 0},
		"unknown amount":   {At: 0, Mask: 1 << 21, Values: []int64{1}},
		"too few values":   {At: 0, Mask: 3, Values: []int64{1}},
		"a negative value": {At: 0, Mask: 1, Values: []int64{-1}},
	} {
		d := Delta{Patches: []Patch{p}}
		if d.check() == nil && d.Fits(&base) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	two := Delta{Patches: []Patch{{At: 0, Mask: 1, Values: []int64{1}}, {At: 0, Mask: 1, Values: []int64{2}}}}
	if two.check() == nil {
		t.Error("two patches of one model are taken")
	}
}

// TestFitKnowsWhatFits: what is said to fit without being encoded does.
func TestFitKnowsWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSummary(t)
		b, err := Encode(&s)
		if err != nil {
			t.Fatal(err)
		}
		if s.roughly() < len(b) {
			t.Fatalf("%d bytes, said to be at most %d", len(b), s.roughly())
		}
	})
	most := Summary{}
	for i := range MaxModels {
		m := Model{Name: fmt.Sprintf("%03d%0250d", i, i)}
		for _, n := range m.patchable() {
			*n = MaxAmount
		}
		most.Models = append(most.Models, m)
	}
	if most = Fit(most); len(most.Models) == 0 {
		t.Fatal("nothing left")
	}
	if _, err := Encode(&most); err != nil {
		t.Fatal(err)
	}
}
