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
		d.ChangedModels = append(d.ChangedModels, ModelChange{Model: m, PrefixesUnchanged: c.SamePrefixes})
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
