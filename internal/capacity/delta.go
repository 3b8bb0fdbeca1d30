package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// SummaryDelta is the difference between a summary and a snapshot: whole models, whole demands, and all other fields.
// It is based on the snapshot and not on an earlier delta, so that a lost delta has no effect on later ones.
type SummaryDelta struct {
	// BaseSeq is the number of the snapshot (of the same Path and Boot) that the delta is based on.
	BaseSeq uint64
	// Head is the summary without Models, Demand, RTTs, Networks, Outcomes and Uses.
	Head Summary
	// ChangedModels are in ascending order of name; RemovedModels are the names of removed models.
	ChangedModels []ModelChange
	RemovedModels []string
	// Patches are changed models that are not in ChangedModels, in ascending order of ModelIndex; see CompactChanges.
	Patches []ModelPatch
	// Demand that changed, and RemovedDemand, of which only the key counts.
	Demand        []CellDemand
	RemovedDemand []CellDemand
	// RTTs that changed, and the cells of RemovedRTTs, in ascending order.
	RTTs        []CellRTT
	RemovedRTTs []string
	// Networks that changed, and RemovedNetworks of which only the key counts.
	Networks, RemovedNetworks []ClientNetwork
	// Outcomes that changed, and RemovedOutcomes of which only the key counts.
	Outcomes        []OutcomeCounts
	RemovedOutcomes []OutcomeCounts
	// TenantUsages that changed, and the tenants of RemovedUsages, in ascending order.
	TenantUsages  []TenantUsage
	RemovedUsages []string
	// IsPartial means that not all changes fit: the delta contains some of them. It applies to the newest summary
	// instead of the snapshot; see OverlayOn.
	IsPartial bool
}

// ModelChange is one model that differs from that of the snapshot.
type ModelChange struct {
	Model ModelCapacity
	// PrefixesUnchanged means that the sketch did not change and is left out of Model.
	PrefixesUnchanged bool
}

// DiffSummaries returns the delta that turns base into next. Both must be valid (see FitToLimits) and of the same path
// and boot.
func DiffSummaries(base, next *Summary) SummaryDelta {
	d := SummaryDelta{BaseSeq: base.Seq, Head: *next}
	d.Head.Models, d.Head.Demand, d.Head.RTTs = nil, nil, nil
	d.Head.Networks, d.Head.Outcomes, d.Head.TenantUsages = nil, nil, nil
	for i, at := 0, 0; i < len(next.Models); i++ {
		m, old := next.Models[i], (*ModelCapacity)(nil)
		for at < len(base.Models) && base.Models[at].Name < m.Name {
			at++
		}
		if at < len(base.Models) && base.Models[at].Name == m.Name {
			old = base.Models[at]
		}
		switch {
		case old == m:
		case old == nil:
			d.ChangedModels = append(d.ChangedModels, ModelChange{Model: *m})
		case !slices.Equal(old.Prefixes, m.Prefixes):
			d.ChangedModels = append(d.ChangedModels, ModelChange{Model: *m})
		case !old.equalExceptPrefixes(m):
			c := ModelChange{Model: *m, PrefixesUnchanged: true}
			c.Model.Prefixes = nil
			d.ChangedModels = append(d.ChangedModels, c)
		}
	}
	for i := range base.Models {
		if next.FindModel(base.Models[i].Name) == nil {
			d.RemovedModels = append(d.RemovedModels, base.Models[i].Name)
		}
	}
	d.Demand, d.RemovedDemand = diffDemand(base.Demand, next.Demand)
	d.RTTs, d.RemovedRTTs = diffRTTs(base.RTTs, next.RTTs)
	d.Networks, d.RemovedNetworks = diffNetworks(base.Networks, next.Networks)
	d.Outcomes, d.RemovedOutcomes = diffOutcomes(base.Outcomes, next.Outcomes)
	d.TenantUsages, d.RemovedUsages = diffUsages(base.TenantUsages, next.TenantUsages)
	return d
}

func diffDemand(base, next []CellDemand) (changed, removed []CellDemand) {
	for len(base) > 0 || len(next) > 0 {
		switch {
		case len(next) == 0 || len(base) > 0 && compareDemand(base[0], next[0]) < 0:
			removed, base = append(removed, base[0]), base[1:]
		case len(base) == 0 || compareDemand(base[0], next[0]) > 0:
			changed, next = append(changed, next[0]), next[1:]
		default:
			if base[0] != next[0] {
				changed = append(changed, next[0])
			}
			base, next = base[1:], next[1:]
		}
	}
	return changed, removed
}

// ApplyTo returns the summary that a complete delta describes. base is the snapshot with number BaseSeq; the caller has
// checked path, boot and number. The result may share memory with both.
func (d *SummaryDelta) ApplyTo(base *Summary) Summary { return d.OverlayOn(base, base) }

// OverlayOn is ApplyTo for a partial delta: its changes are applied to held, the newest summary, and base supplies the
// sketches that did not change.
func (d *SummaryDelta) OverlayOn(base, held *Summary) Summary {
	s := d.Head
	s.Models = d.overlayModels(base, held)
	keptDemand := dropMatching(held.Demand, func(x *CellDemand) bool {
		_, gone := slices.BinarySearchFunc(d.RemovedDemand, *x, compareDemand)
		return gone
	})
	s.Demand = mergeSorted(keptDemand, d.Demand, MaxDemand, compareDemand, keepSecond)
	s.RTTs = mergeSorted(d.remainingRTTs(held.RTTs), d.RTTs, MaxRTTs, compareRTT, keepSecond)
	s.Networks = mergeSorted(d.remainingNetworks(held.Networks), d.Networks, MaxNetworks, compareNetwork, keepSecond)
	s.Outcomes = mergeSorted(d.remainingOutcomes(held.Outcomes), d.Outcomes, MaxOutcomes, compareOutcome, keepSecond)
	s.TenantUsages = mergeSorted(d.remainingUsages(held.TenantUsages), d.TenantUsages, MaxTenantUsages, compareUsage, keepSecond)
	return s
}

func (d *SummaryDelta) overlayModels(base, held *Summary) []*ModelCapacity {
	if len(d.ChangedModels)+len(d.RemovedModels) == 0 && base == held {
		if len(d.Patches) == 0 {
			return base.Models
		}
		return d.applyPatches(base.Models)
	}
	changed := make([]*ModelCapacity, 0, len(d.ChangedModels)+len(d.Patches))
	for _, c := range d.ChangedModels {
		m := c.Model
		if old := base.FindModel(m.Name); c.PrefixesUnchanged && old != nil {
			m.Prefixes = old.Prefixes
		}
		changed = append(changed, &m)
	}
	for i := range d.Patches {
		if p := &d.Patches[i]; p.ModelIndex < len(base.Models) {
			m := *base.Models[p.ModelIndex]
			p.applyTo(&m)
			changed = append(changed, &m)
		}
	}
	slices.SortStableFunc(changed, compareModel)
	changed = slices.CompactFunc(changed, func(a, b *ModelCapacity) bool { return a.Name == b.Name })
	kept := dropMatching(held.Models, func(m **ModelCapacity) bool {
		_, gone := slices.BinarySearch(d.RemovedModels, (*m).Name)
		return gone
	})
	return mergeSorted(kept, changed, MaxModels, compareModel, keepSecond)
}

func keepSecond[E any](_, b E) E { return b }

// dropMatching returns list itself if nothing is dropped, which is the common case.
func dropMatching[E any](list []E, drop func(*E) bool) []E {
	for i := range list {
		if !drop(&list[i]) {
			continue
		}
		out := slices.Clone(list[:i])
		for j := i + 1; j < len(list); j++ {
			if !drop(&list[j]) {
				out = append(out, list[j])
			}
		}
		return out
	}
	return list
}

// TakePart returns a partial delta with at most n of the changes, beginning with change number from and wrapping
// around, so that successive calls with growing from include every change.
func (d *SummaryDelta) TakePart(from, n int) SummaryDelta {
	p := SummaryDelta{BaseSeq: d.BaseSeq, Head: d.Head, IsPartial: true}
	total := d.Len()
	if n >= total {
		return *d
	}
	take := func(i int) bool { return (i-from%total+total)%total < n }
	i := 0
	p.ChangedModels, i = filterFrom(d.ChangedModels, i, take)
	p.RemovedModels, i = filterFrom(d.RemovedModels, i, take)
	p.Patches, i = filterFrom(d.Patches, i, take)
	p.Demand, i = filterFrom(d.Demand, i, take)
	p.RemovedDemand, i = filterFrom(d.RemovedDemand, i, take)
	p.RTTs, i = filterFrom(d.RTTs, i, take)
	p.RemovedRTTs, i = filterFrom(d.RemovedRTTs, i, take)
	p.Networks, i = filterFrom(d.Networks, i, take)
	p.RemovedNetworks, i = filterFrom(d.RemovedNetworks, i, take)
	p.Outcomes, i = filterFrom(d.Outcomes, i, take)
	p.RemovedOutcomes, i = filterFrom(d.RemovedOutcomes, i, take)
	p.TenantUsages, i = filterFrom(d.TenantUsages, i, take)
	p.RemovedUsages, _ = filterFrom(d.RemovedUsages, i, take)
	return p
}

// Len returns the number of changes of all kinds.
func (d *SummaryDelta) Len() int {
	return len(d.ChangedModels) + len(d.RemovedModels) + len(d.Patches) + len(d.Demand) + len(d.RemovedDemand) + len(d.RTTs) + len(d.RemovedRTTs) +
		len(d.Networks) + len(d.RemovedNetworks) + len(d.Outcomes) + len(d.RemovedOutcomes) + len(d.TenantUsages) + len(d.RemovedUsages)
}

func filterFrom[E any](list []E, offset int, take func(int) bool) (out []E, next int) {
	for i := range list {
		if take(offset + i) {
			out = append(out, list[i])
		}
	}
	return out, offset + len(list)
}

// EncodeDelta writes d as protobuf, at most MaxEncoded bytes.
func EncodeDelta(d *SummaryDelta) ([]byte, error) {
	if err := d.checkDelta(); err != nil {
		return nil, fmt.Errorf("encoding delta of %s: %w", d.Head.Path, err)
	}
	p := &capacitypb.Delta{
		BaseSeq: d.BaseSeq, Head: summaryToPB(&d.Head), Removed: d.RemovedModels, Partial: d.IsPartial,
		Rtts: rttsToPB(d.RTTs), RemovedRtts: d.RemovedRTTs,
		Networks: networksToPB(d.Networks), RemovedNetworks: networksToPB(d.RemovedNetworks),
		Outcomes: outcomesToPB(d.Outcomes), RemovedOutcomes: outcomeKeysToPB(d.RemovedOutcomes),
		Uses: usagesToPB(d.TenantUsages), RemovedUses: d.RemovedUsages,
	}
	patchesToPB(d.Patches, p)
	for i := range d.ChangedModels {
		p.Changed = append(p.Changed, &capacitypb.Change{Model: modelToPB(&d.ChangedModels[i].Model), SamePrefixes: d.ChangedModels[i].PrefixesUnchanged})
	}
	for i := range d.Demand {
		p.Demand = append(p.Demand, demandToPB(&d.Demand[i]))
	}
	for i := range d.RemovedDemand {
		k := &d.RemovedDemand[i]
		p.RemovedDemand = append(p.RemovedDemand, &capacitypb.DemandKey{Service: k.Service, Model: k.Model, Cell: k.Cell})
	}
	return marshalBounded(p)
}

// DecodeDelta reads the output of EncodeDelta. It returns an error for what DecodeSummary would refuse in a Summary.
func DecodeDelta(b []byte) (*SummaryDelta, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("decoding delta: %d bytes: %w", len(b), ErrTooLarge)
	}
	var p capacitypb.Delta
	if err := proto.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("decoding delta: %w", err)
	}
	d, err := deltaFromPB(&p)
	if err == nil {
		err = d.checkDelta()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding delta: %w", err)
	}
	return d, nil
}

func deltaFromPB(p *capacitypb.Delta) (*SummaryDelta, error) {
	if len(p.Changed) > MaxModels || len(p.Removed) > MaxModels || len(p.Demand) > MaxDemand || len(p.RemovedDemand) > MaxDemand ||
		len(p.Rtts) > MaxRTTs || len(p.RemovedRtts) > MaxRTTs || len(p.RemovedOutcomes) > MaxOutcomes ||
		len(p.Networks) > MaxNetworks || len(p.RemovedNetworks) > MaxNetworks ||
		len(p.Uses) > MaxTenantUsages || len(p.RemovedUses) > MaxTenantUsages {
		return nil, errors.New("more changes than a summary has entries")
	}
	if p.Head == nil {
		return nil, errors.New("the delta has no head")
	}
	head, err := summaryFromPB(p.Head)
	if err != nil {
		return nil, err
	}
	d := &SummaryDelta{
		BaseSeq: p.BaseSeq, Head: *head, RemovedModels: p.Removed, IsPartial: p.Partial,
		RTTs: rttsFromPB(p.Rtts), RemovedRTTs: p.RemovedRtts, RemovedOutcomes: outcomeKeysFromPB(p.RemovedOutcomes),
		Networks: networksFromPB(p.Networks), RemovedNetworks: networksFromPB(p.RemovedNetworks),
		TenantUsages: usagesFromPB(p.Uses), RemovedUsages: p.RemovedUses,
	}
	if d.Outcomes, err = outcomesFromPB(p.Outcomes); err != nil {
		return nil, err
	}
	if d.Patches, err = patchesFromPB(p); err != nil {
		return nil, err
	}
	for _, c := range p.Changed {
		if c.Model == nil {
			return nil, errors.New("change without a model")
		}
		m, err := modelFromPB(c.Model)
		if err != nil {
			return nil, err
		}
		d.ChangedModels = append(d.ChangedModels, ModelChange{Model: *m, PrefixesUnchanged: c.SamePrefixes})
	}
	for _, x := range p.Demand {
		d.Demand = append(d.Demand, demandFromPB(x))
	}
	for _, k := range p.RemovedDemand {
		d.RemovedDemand = append(d.RemovedDemand, CellDemand{Service: k.Service, Model: k.Model, Cell: k.Cell})
	}
	return d, nil
}

func (d *SummaryDelta) checkDelta() error {
	if len(d.Head.Models) > 0 || len(d.Head.Demand) > 0 || len(d.Head.RTTs) > 0 || len(d.Head.Networks) > 0 || len(d.Head.Outcomes) > 0 || len(d.Head.TenantUsages) > 0 {
		return errors.New("the head has models, demand, round trips, networks, outcomes or uses")
	}
	if len(d.ChangedModels) > MaxModels || len(d.RemovedModels) > MaxModels {
		return errors.New("more changes than a summary has models")
	}
	if !slices.IsSortedFunc(d.RemovedModels, strings.Compare) {
		return errors.New("removed models are not in order")
	}
	for i := range d.ChangedModels {
		if c := &d.ChangedModels[i]; c.PrefixesUnchanged && len(c.Model.Prefixes) > 0 {
			return errors.New("a change has prefixes although they are marked as unchanged")
		}
		if i > 0 && d.ChangedModels[i-1].Model.Name >= d.ChangedModels[i].Model.Name {
			return errors.New("changed models are not in ascending order of name")
		}
		if err := d.ChangedModels[i].Model.checkModel(); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	if err := cmp.Or(d.Head.checkLimits(), d.checkPatches()); err != nil {
		return err
	}
	if err := checkDemand(d.Demand); err != nil {
		return err
	}
	if err := checkDemand(d.RemovedDemand); err != nil {
		return err
	}
	return cmp.Or(d.checkRTTs(), checkNetworks(d.Networks), checkNetworks(d.RemovedNetworks), d.checkOutcomes(), d.checkUsages())
}
