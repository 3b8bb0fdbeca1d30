package capacity

import (
	"errors"
	"math/bits"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// ModelPatch is a model of which only amounts changed, told by its place in the snapshot: a tenth of what the model takes.
type ModelPatch struct {
	// ModelIndex is the model's place among the snapshot's.
	ModelIndex int
	// Mask has a bit for each amount that changed, and Values are those, the lowest bit's first.
	Mask   uint32
	Values []int64
}

const (
	numPatchAmounts    = 21       // that a Patch may tell
	usualPatchValues   = 12       // at most so many change in a model that is just busy
	partialAmountsMask = 1<<6 - 1 // of its mask's bits, those of amounts that are a part and a whole; see checkPartAmounts
)

// patchAmountFields are the amounts that a Patch may tell, in the order of its mask's bits, which the wire fixes. It is a loop and
// no copy, which would keep the compiler from leaving m on the stack.
func (m *ModelCapacity) patchAmountFields() (out [numPatchAmounts]*int64) {
	for i, n := range m.amountFields() {
		out[i] = n
	}
	out[numPatchAmounts-2], out[numPatchAmounts-1] = &m.WarmMillis, &m.ColdMillis
	return out
}

// CompactChanges makes patches of the changes that are nothing but other amounts. base is the snapshot that d builds on. What
// reads d must know patches, and nobody else may hold its Changed.
func (d *SummaryDelta) CompactChanges(base *Summary) {
	kept := d.ChangedModels[:0]
	at := 0
	for i := range d.ChangedModels {
		c := &d.ChangedModels[i]
		for at < len(base.Models) && base.Models[at].Name < c.Model.Name {
			at++
		}
		if !c.PrefixesUnchanged || at == len(base.Models) || !c.Model.equalExceptAmounts(&base.Models[at]) {
			kept = append(kept, *c)
			continue
		}
		d.Patches = append(d.Patches, newModelPatch(at, &base.Models[at], &c.Model))
	}
	clear(d.ChangedModels[len(kept):])
	d.ChangedModels = kept
}

func newModelPatch(at int, old, m *ModelCapacity) ModelPatch {
	p := ModelPatch{ModelIndex: at, Values: make([]int64, 0, usualPatchValues)}
	x, y := old.patchAmountFields(), m.patchAmountFields()
	for bit := range x {
		if *x[bit] != *y[bit] {
			p.Mask |= 1 << bit
			p.Values = append(p.Values, *y[bit])
		}
	}
	return p
}

// applyTo makes of a copy of the snapshot's model the one that the patch tells of.
func (p *ModelPatch) applyTo(m *ModelCapacity) {
	to, next := m.patchAmountFields(), 0
	for mask := p.Mask; mask != 0; mask &= mask - 1 {
		*to[bits.TrailingZeros32(mask)] = p.Values[next]
		next++
	}
}

// CheckAgainst refuses patches that make no lawful model of the snapshot's.
func (d *SummaryDelta) CheckAgainst(base *Summary) error {
	for i := range d.Patches {
		p := &d.Patches[i]
		if p.ModelIndex >= len(base.Models) {
			return errors.New("a patch of a model that the snapshot does not have")
		}
		if p.Mask&partialAmountsMask == 0 {
			continue // the snapshot's are lawful
		}
		m := base.Models[p.ModelIndex]
		p.applyTo(&m)
		if err := m.checkPartAmounts(); err != nil {
			return err
		}
	}
	return nil
}

// checkPatches refuses what no base makes sense of.
func (d *SummaryDelta) checkPatches() error {
	last := -1
	for i := range d.Patches {
		p := &d.Patches[i]
		switch {
		case p.ModelIndex <= last || p.ModelIndex >= MaxModels:
			return errors.New("patches are not in ascending order of their models, or beyond the last")
		case p.Mask == 0 || p.Mask >= 1<<numPatchAmounts || bits.OnesCount32(p.Mask) != len(p.Values):
			return errors.New("a patch does not have a value for each of its amounts")
		}
		last = p.ModelIndex
		for _, n := range p.Values {
			if err := checkAmount(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func patchesToPB(ps []ModelPatch, p *capacitypb.Delta) {
	for i := range ps {
		p.PatchAt = append(p.PatchAt, uint32(ps[i].ModelIndex))
		p.PatchMask = append(p.PatchMask, ps[i].Mask)
		for _, n := range ps[i].Values {
			p.PatchValues = append(p.PatchValues, uint64(n))
		}
	}
}

func patchesFromPB(p *capacitypb.Delta) ([]ModelPatch, error) {
	if len(p.PatchAt) > MaxModels || len(p.PatchMask) != len(p.PatchAt) {
		return nil, errors.New("more patches than a statement has models, or columns of unequal length")
	}
	if len(p.PatchAt) == 0 {
		return nil, nil
	}
	values := make([]int64, len(p.PatchValues))
	for i, n := range p.PatchValues {
		values[i] = toAmount(n)
	}
	out := make([]ModelPatch, len(p.PatchAt))
	for i := range out {
		n := bits.OnesCount32(p.PatchMask[i])
		if n > len(values) {
			return nil, errors.New("patches without values")
		}
		out[i] = ModelPatch{ModelIndex: int(p.PatchAt[i]), Mask: p.PatchMask[i], Values: values[:n:n]}
		values = values[n:]
	}
	if len(values) > 0 {
		return nil, errors.New("values without patches")
	}
	return out, nil
}

// applyPatches is base's models with the patches laid on.
func (d *SummaryDelta) applyPatches(base []ModelCapacity) []ModelCapacity {
	out := append(make([]ModelCapacity, 0, len(base)), base...)
	for i := range d.Patches {
		p := &d.Patches[i]
		if p.ModelIndex < len(out) {
			p.applyTo(&out[p.ModelIndex])
		}
	}
	return out
}
