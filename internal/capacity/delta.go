package capacity

import "slices"

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
		m, old := &next.Models[i], (*ModelCapacity)(nil)
		for at < len(base.Models) && base.Models[at].Name < m.Name {
			at++
		}
		if at < len(base.Models) && base.Models[at].Name == m.Name {
			old = &base.Models[at]
		}
		switch {
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

func (d *SummaryDelta) overlayModels(base, held *Summary) []ModelCapacity {
	if len(d.ChangedModels)+len(d.RemovedModels) == 0 && base == held {
		if len(d.Patches) == 0 {
			return base.Models
		}
		return d.applyPatches(base.Models)
	}
	changed := make([]ModelCapacity, 0, len(d.ChangedModels)+len(d.Patches))
	for _, c := range d.ChangedModels {
		m := c.Model
		if old := base.FindModel(m.Name); c.PrefixesUnchanged && old != nil {
			m.Prefixes = old.Prefixes
		}
		changed = append(changed, m)
	}
	for i := range d.Patches {
		if p := &d.Patches[i]; p.ModelIndex < len(base.Models) {
			changed = append(changed, base.Models[p.ModelIndex])
			p.applyTo(&changed[len(changed)-1])
		}
	}
	slices.SortStableFunc(changed, compareModel)
	changed = slices.CompactFunc(changed, func(a, b ModelCapacity) bool { return a.Name == b.Name })
	kept := dropMatching(held.Models, func(m *ModelCapacity) bool {
		_, gone := slices.BinarySearch(d.RemovedModels, m.Name)
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
