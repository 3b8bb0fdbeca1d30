package capacity

import (
	"errors"
	"math/bits"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// ModelPatch is a model of which only amounts changed, identified by its index in the snapshot. It takes a tenth of the
// size of the model.
type ModelPatch struct {
	// ModelIndex is the model's index in the snapshot.
	ModelIndex int
	// Mask has a bit for each amount that changed; Values are those amounts, in ascending order of their bits.
	Mask   uint32
	Values []int64
}

const (
	numPatchAmounts    = 21       // that a ModelPatch may change
	usualPatchValues   = 12       // a busy model rarely changes more
	partialAmountsMask = 1<<6 - 1 // mask bits of the amounts that are a part and a whole; see checkPartAmounts
)

// patchAmountFields returns the amounts that a ModelPatch may change, in the order of the mask's bits, which the
// encoding fixes. It is an iterator and does not copy, so that m stays on the stack.
func (m *ModelCapacity) patchAmountFields() (out [numPatchAmounts]*int64) {
	for i, n := range m.amountFields() {
		out[i] = n
	}
	out[numPatchAmounts-2], out[numPatchAmounts-1] = &m.WarmMillis, &m.ColdMillis
	return out
}

// CompactChanges converts changes of amounts alone to patches. base is the snapshot that d is based on. The receiver of
// d must support patches, and ChangedModels must not be shared.
func (d *SummaryDelta) CompactChanges(base *Summary) {
	kept := d.ChangedModels[:0]
	at := 0
	for i := range d.ChangedModels {
		c := &d.ChangedModels[i]
		for at < len(base.Models) && base.Models[at].Name < c.Model.Name {
			at++
		}
		if !c.PrefixesUnchanged || at == len(base.Models) || !c.Model.equalExceptAmounts(base.Models[at]) {
			kept = append(kept, *c)
			continue
		}
		d.Patches = append(d.Patches, newModelPatch(at, base.Models[at], &c.Model))
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

// applyTo changes a copy of the snapshot's model as the patch describes.
func (p *ModelPatch) applyTo(m *ModelCapacity) {
	to, next := m.patchAmountFields(), 0
	for mask := p.Mask; mask != 0; mask &= mask - 1 {
		*to[bits.TrailingZeros32(mask)] = p.Values[next]
		next++
	}
}

// CheckAgainst returns an error if a patch makes a model of the snapshot invalid.
func (d *SummaryDelta) CheckAgainst(base *Summary) error {
	for i := range d.Patches {
		p := &d.Patches[i]
		if p.ModelIndex >= len(base.Models) {
			return errors.New("a patch of a model that the snapshot does not have")
		}
		if p.Mask&partialAmountsMask == 0 {
			continue // the snapshot's models are valid
		}
		if err := p.checkPartAmounts(base.Models[p.ModelIndex]); err != nil {
			return err
		}
	}
	return nil
}

// checkPartAmounts is the function of that name for the model that the patch makes of m.
func (p *ModelPatch) checkPartAmounts(m *ModelCapacity) error {
	amounts := [...]int64{m.Ready, m.Total, m.KVTotal, m.KVFree, m.SlotsTotal, m.SlotsFree} // those of partialAmountsMask
	next := 0
	for bit := range amounts {
		if p.Mask&(1<<bit) != 0 {
			amounts[bit] = p.Values[next]
			next++
		}
	}
	parts := ModelCapacity{Ready: amounts[0], Total: amounts[1], KVTotal: amounts[2], KVFree: amounts[3], SlotsTotal: amounts[4], SlotsFree: amounts[5]}
	return parts.checkPartAmounts()
}

// checkPatches returns an error for patches that are invalid for every base.
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
		return nil, errors.New("more patches than a summary has models, or columns of unequal length")
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

// applyPatches returns base's models with patched copies of those that have a patch.
func (d *SummaryDelta) applyPatches(base []*ModelCapacity) []*ModelCapacity {
	out, patched := append(make([]*ModelCapacity, 0, len(base)), base...), make([]ModelCapacity, len(d.Patches))
	for i := range d.Patches {
		p, m := &d.Patches[i], &patched[i]
		if p.ModelIndex < len(out) {
			*m = *base[p.ModelIndex]
			p.applyTo(m)
			out[p.ModelIndex] = m
		}
	}
	return out
}
