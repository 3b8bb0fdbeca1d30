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
func EncodeDelta(d *Delta) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("encoding delta of %s: %w", d.Head.Path, err)
	}
	p := &capacitypb.Delta{
		BaseSeq: d.BaseSeq, Head: summaryToPB(&d.Head), Removed: d.Removed, Partial: d.Partial,
		Rtts: rttsToPB(d.RTTs), RemovedRtts: d.RemovedRTTs,
		Networks: networksToPB(d.Networks), RemovedNetworks: networksToPB(d.RemovedNetworks),
		Outcomes: outcomesToPB(d.Outcomes), RemovedOutcomes: outcomeKeysToPB(d.RemovedOutcomes),
		Uses: usesToPB(d.Uses), RemovedUses: d.RemovedUses,
	}
	patchesToPB(d.Patches, p)
	for i := range d.Changed {
		p.Changed = append(p.Changed, &capacitypb.Change{Model: modelToPB(&d.Changed[i].Model), SamePrefixes: d.Changed[i].SamePrefixes})
	}
	for i := range d.Demand {
		p.Demand = append(p.Demand, demandToPB(&d.Demand[i]))
	}
	for i := range d.RemovedDemand {
		k := &d.RemovedDemand[i]
		p.RemovedDemand = append(p.RemovedDemand, &capacitypb.DemandKey{Service: k.Service, Model: k.Model, Cell: k.Cell})
	}
	return marshal(p)
}

// DecodeDelta reads what EncodeDelta wrote and refuses what Decode would refuse in a Summary.
func DecodeDelta(b []byte) (*Delta, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("decoding delta: %d bytes: %w", len(b), ErrTooLarge)
	}
	var p capacitypb.Delta
	if err := proto.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("decoding delta: %w", err)
	}
	d, err := deltaFromPB(&p)
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding delta: %w", err)
	}
	return d, nil
}

func deltaFromPB(p *capacitypb.Delta) (*Delta, error) {
	if len(p.Changed) > MaxModels || len(p.Removed) > MaxModels || len(p.Demand) > MaxDemand || len(p.RemovedDemand) > MaxDemand ||
		len(p.Rtts) > MaxRTTs || len(p.RemovedRtts) > MaxRTTs || len(p.RemovedOutcomes) > MaxOutcomes ||
		len(p.Networks) > MaxNetworks || len(p.RemovedNetworks) > MaxNetworks ||
		len(p.Uses) > MaxUses || len(p.RemovedUses) > MaxUses {
		return nil, errors.New("more changes than a statement has entries")
	}
	if p.Head == nil {
		return nil, errors.New("no head")
	}
	head, err := summaryFromPB(p.Head)
	if err != nil {
		return nil, err
	}
	d := &Delta{
		BaseSeq: p.BaseSeq, Head: *head, Removed: p.Removed, Partial: p.Partial,
		RTTs: rttsFromPB(p.Rtts), RemovedRTTs: p.RemovedRtts, RemovedOutcomes: outcomeKeysFromPB(p.RemovedOutcomes),
		Networks: networksFromPB(p.Networks), RemovedNetworks: networksFromPB(p.RemovedNetworks),
		Uses: usesFromPB(p.Uses), RemovedUses: p.RemovedUses,
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
		d.Changed = append(d.Changed, Change{Model: m, SamePrefixes: c.SamePrefixes})
	}
	for _, x := range p.Demand {
		d.Demand = append(d.Demand, demandFromPB(x))
	}
	for _, k := range p.RemovedDemand {
		d.RemovedDemand = append(d.RemovedDemand, Demand{Service: k.Service, Model: k.Model, Cell: k.Cell})
	}
	return d, nil
}

func (d *Delta) check() error {
	if len(d.Head.Models) > 0 || len(d.Head.Demand) > 0 || len(d.Head.RTTs) > 0 || len(d.Head.Networks) > 0 || len(d.Head.Outcomes) > 0 || len(d.Head.Uses) > 0 {
		return errors.New("the head carries models, demand, round trips, networks, outcomes or uses")
	}
	if len(d.Changed) > MaxModels || len(d.Removed) > MaxModels {
		return errors.New("more changes than a statement has models")
	}
	if !slices.IsSortedFunc(d.Removed, strings.Compare) {
		return errors.New("removed models are not in order")
	}
	for i := range d.Changed {
		if c := &d.Changed[i]; c.SamePrefixes && len(c.Model.Prefixes) > 0 {
			return errors.New("prefixes given and said to be the same")
		}
		if i > 0 && d.Changed[i-1].Model.Name >= d.Changed[i].Model.Name {
			return errors.New("changed models are not in ascending order of name")
		}
		if err := d.Changed[i].Model.check(); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	if err := cmp.Or(d.Head.check(), d.checkPatches()); err != nil {
		return err
	}
	if err := checkDemand(d.Demand); err != nil {
		return err
	}
	if err := checkDemand(d.RemovedDemand); err != nil {
		return err
	}
	return cmp.Or(d.checkRTTs(), checkNetworks(d.Networks), checkNetworks(d.RemovedNetworks), d.checkOutcomes(), d.checkUses())
}
