package capacity

import "slices"

// Delta is what a statement changed since a snapshot: whole models, whole demands, and everything else anew. It builds
// on the snapshot, never on an earlier delta, so a lost one never matters.
type Delta struct {
	// BaseSeq numbers the snapshot (of the same Path and Boot) that the delta builds on.
	BaseSeq uint64
	// Head is the statement without Models, Demand, RTTs, Networks, Outcomes and Uses.
	Head Summary
	// Changed models, in ascending order of name, and the names of Removed ones.
	Changed []Change
	Removed []string
	// Patches are changed models that are not among Changed, in ascending order of At; see Compact.
	Patches []Patch
	// Demand that changed, and RemovedDemand of which only the key counts.
	Demand        []Demand
	RemovedDemand []Demand
	// RTTs that changed, and the cells of RemovedRTTs, in ascending order.
	RTTs        []RTT
	RemovedRTTs []string
	// Networks that changed, and RemovedNetworks of which only the key counts.
	Networks, RemovedNetworks []Network
	// Outcomes that changed, and RemovedOutcomes of which only the key counts.
	Outcomes        []Outcome
	RemovedOutcomes []Outcome
	// Uses that changed, and the tenants of RemovedUses, in ascending order.
	Uses        []Use
	RemovedUses []string
	// Partial means that not all changes found room: what is here is true, about the rest nothing is said. It
	// lies over the newest statement held instead of the snapshot; see Overlay.
	Partial bool
}

// Change is one model that differs from the base's.
type Change struct {
	Model Model
	// SamePrefixes means that the sketch did not change and is left out of Model.
	SamePrefixes bool
}

// Diff is the Delta that turns base into next. Both must be lawful (see Fit) and of one path and boot.
func Diff(base, next *Summary) Delta {
	d := Delta{BaseSeq: base.Seq, Head: *next}
	d.Head.Models, d.Head.Demand, d.Head.RTTs = nil, nil, nil
	d.Head.Networks, d.Head.Outcomes, d.Head.Uses = nil, nil, nil
	for i, at := 0, 0; i < len(next.Models); i++ {
		m, old := &next.Models[i], (*Model)(nil)
		for at < len(base.Models) && base.Models[at].Name < m.Name {
			at++
		}
		if at < len(base.Models) && base.Models[at].Name == m.Name {
			old = &base.Models[at]
		}
		switch {
		case old == nil:
			d.Changed = append(d.Changed, Change{Model: *m})
		case !slices.Equal(old.Prefixes, m.Prefixes):
			d.Changed = append(d.Changed, Change{Model: *m})
		case !old.equalButPrefixes(m):
			c := Change{Model: *m, SamePrefixes: true}
			c.Model.Prefixes = nil
			d.Changed = append(d.Changed, c)
		}
	}
	for i := range base.Models {
		if next.Model(base.Models[i].Name) == nil {
			d.Removed = append(d.Removed, base.Models[i].Name)
		}
	}
	d.Demand, d.RemovedDemand = diffDemand(base.Demand, next.Demand)
	d.RTTs, d.RemovedRTTs = diffRTTs(base.RTTs, next.RTTs)
	d.Networks, d.RemovedNetworks = diffNetworks(base.Networks, next.Networks)
	d.Outcomes, d.RemovedOutcomes = diffOutcomes(base.Outcomes, next.Outcomes)
	d.Uses, d.RemovedUses = diffUses(base.Uses, next.Uses)
	return d
}

func diffDemand(base, next []Demand) (changed, removed []Demand) {
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

// Apply gives the statement that a whole delta stands for: base is the snapshot that BaseSeq numbers; the caller has
// checked path, boot and number. The result may share memory with both.
func (d *Delta) Apply(base *Summary) Summary { return d.Overlay(base, base) }

// Overlay is Apply for a Partial delta: its changes replace what held, the newest statement held, says, and base lends
// the sketches that did not change.
func (d *Delta) Overlay(base, held *Summary) Summary {
	s := d.Head
	s.Models = d.models(base, held)
	keptDemand := without(held.Demand, func(x *Demand) bool {
		_, gone := slices.BinarySearchFunc(d.RemovedDemand, *x, compareDemand)
		return gone
	})
	s.Demand = mergeSorted(keptDemand, d.Demand, MaxDemand, compareDemand, second)
	s.RTTs = mergeSorted(d.keptRTTs(held.RTTs), d.RTTs, MaxRTTs, compareRTT, second)
	s.Networks = mergeSorted(d.keptNetworks(held.Networks), d.Networks, MaxNetworks, compareNetwork, second)
	s.Outcomes = mergeSorted(d.keptOutcomes(held.Outcomes), d.Outcomes, MaxOutcomes, compareOutcome, second)
	s.Uses = mergeSorted(d.keptUses(held.Uses), d.Uses, MaxUses, compareUse, second)
	return s
}

func (d *Delta) models(base, held *Summary) []Model {
	if len(d.Changed)+len(d.Removed) == 0 && base == held {
		if len(d.Patches) == 0 {
			return base.Models
		}
		return d.patched(base.Models)
	}
	changed := make([]Model, 0, len(d.Changed)+len(d.Patches))
	for _, c := range d.Changed {
		m := c.Model
		if old := base.Model(m.Name); c.SamePrefixes && old != nil {
			m.Prefixes = old.Prefixes
		}
		changed = append(changed, m)
	}
	for i := range d.Patches {
		if p := &d.Patches[i]; p.At < len(base.Models) {
			changed = append(changed, base.Models[p.At])
			p.onto(&changed[len(changed)-1])
		}
	}
	slices.SortStableFunc(changed, compareModel)
	changed = slices.CompactFunc(changed, func(a, b Model) bool { return a.Name == b.Name })
	kept := without(held.Models, func(m *Model) bool {
		_, gone := slices.BinarySearch(d.Removed, m.Name)
		return gone
	})
	return mergeSorted(kept, changed, MaxModels, compareModel, second)
}

func second[E any](_, b E) E { return b }

// without shares list when nothing is dropped, which is the common case.
func without[E any](list []E, drop func(*E) bool) []E {
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

// Part is a Partial delta with at most n of the changes, beginning with change number from and going round, so that
// successive calls with growing from let every change have its turn.
func (d *Delta) Part(from, n int) Delta {
	p := Delta{BaseSeq: d.BaseSeq, Head: d.Head, Partial: true}
	total := d.Len()
	if n >= total {
		return *d
	}
	take := func(i int) bool { return (i-from%total+total)%total < n }
	i := 0
	p.Changed, i = pickFrom(d.Changed, i, take)
	p.Removed, i = pickFrom(d.Removed, i, take)
	p.Patches, i = pickFrom(d.Patches, i, take)
	p.Demand, i = pickFrom(d.Demand, i, take)
	p.RemovedDemand, i = pickFrom(d.RemovedDemand, i, take)
	p.RTTs, i = pickFrom(d.RTTs, i, take)
	p.RemovedRTTs, i = pickFrom(d.RemovedRTTs, i, take)
	p.Networks, i = pickFrom(d.Networks, i, take)
	p.RemovedNetworks, i = pickFrom(d.RemovedNetworks, i, take)
	p.Outcomes, i = pickFrom(d.Outcomes, i, take)
	p.RemovedOutcomes, i = pickFrom(d.RemovedOutcomes, i, take)
	p.Uses, i = pickFrom(d.Uses, i, take)
	p.RemovedUses, _ = pickFrom(d.RemovedUses, i, take)
	return p
}

// Len is the number of changes, of all kinds.
func (d *Delta) Len() int {
	return len(d.Changed) + len(d.Removed) + len(d.Patches) + len(d.Demand) + len(d.RemovedDemand) + len(d.RTTs) + len(d.RemovedRTTs) +
		len(d.Networks) + len(d.RemovedNetworks) + len(d.Outcomes) + len(d.RemovedOutcomes) + len(d.Uses) + len(d.RemovedUses)
}

func pickFrom[E any](list []E, offset int, take func(int) bool) (out []E, next int) {
	for i := range list {
		if take(offset + i) {
			out = append(out, list[i])
		}
	}
	return out, offset + len(list)
}
