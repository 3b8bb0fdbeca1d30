package capacity

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
	"github.com/spillway-lb/spillway/internal/spec"
)

// EncodeSummary writes s as protobuf, at most MaxEncoded bytes. It returns an error for what DecodeSummary would
// refuse; FitToLimits makes a summary valid.
func EncodeSummary(s *Summary) ([]byte, error) {
	if err := s.checkLimits(); err != nil {
		return nil, fmt.Errorf("encoding summary of %s: %w", s.Path, err)
	}
	return marshalBounded(summaryToPB(s))
}

// DecodeSummary reads the output of EncodeSummary. It returns an error for anything over the limits, amounts that are
// negative or too great, and unsorted lists. It keeps the fields of newer versions, so that EncodeSummary writes them
// again.
func DecodeSummary(b []byte) (*Summary, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("decoding summary: %d bytes: %w", len(b), ErrTooLarge)
	}
	var p capacitypb.Summary
	if err := proto.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("decoding summary: %w", err)
	}
	s, err := summaryFromPB(&p)
	if err == nil {
		err = s.checkLimits()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding summary: %w", err)
	}
	return s, nil
}

func marshalBounded(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("encoding: %d bytes: %w", len(b), ErrTooLarge)
	}
	return b, nil
}

func setUnknown(m proto.Message, u string) {
	if u != "" {
		m.ProtoReflect().SetUnknown([]byte(u))
	}
}

func getUnknown(m proto.Message) string { return string(m.ProtoReflect().GetUnknown()) }

func summaryToPB(s *Summary) *capacitypb.Summary {
	p := &capacitypb.Summary{
		Path: &capacitypb.Path{Region: s.Path.Region, Zone: s.Path.Zone, Instance: s.Path.Instance},
		Boot: s.Boot, Seq: s.Seq, Endpoint: s.Endpoint, Draining: s.Draining,
		Models: make([]*capacitypb.Model, len(s.Models)), Acks: make([]*capacitypb.Ack, len(s.Acks)),
		Demand: make([]*capacitypb.Demand, len(s.Demand)), Rtts: rttsToPB(s.RTTs),
		Networks: networksToPB(s.Networks), Outcomes: outcomesToPB(s.Outcomes), Uses: usagesToPB(s.TenantUsages), Holding: heldLeasesToPB(s.HeldLeases),
	}
	for i := range s.Models {
		p.Models[i] = modelToPB(s.Models[i])
	}
	for i := range s.Acks {
		a := &s.Acks[i]
		p.Acks[i] = &capacitypb.Ack{Parent: a.Parent, Boot: a.Boot, Ticket: a.Ticket}
		setUnknown(p.Acks[i], a.unknown)
	}
	for i := range s.Demand {
		p.Demand[i] = demandToPB(&s.Demand[i])
	}
	setUnknown(p, s.unknown)
	return p
}

func modelToPB(m *ModelCapacity) *capacitypb.Model {
	p := &capacitypb.Model{
		Name: m.Name, Ready: uint64(m.Ready), Total: uint64(m.Total), Hardware: make([]*capacitypb.Hardware, len(m.Hardware)),
		KvTotal: uint64(m.KVTotal), KvFree: uint64(m.KVFree), SlotsTotal: uint64(m.SlotsTotal), SlotsFree: uint64(m.SlotsFree),
		Running: uint64(m.Running), Queued: uint64(m.Queued), Backlog: uint64(m.Backlog),
		Ahead: classesToPB(&m.WorkAhead), Headroom: classesToPB(&m.Headroom),
		Warm: uint64(m.Warm), Cold: uint64(m.Cold), CostMicros: uint64(m.CostMicros), MaxContext: uint64(m.MaxContext),
		WarmMillis: uint64(m.WarmMillis), ColdMillis: uint64(m.ColdMillis), Pools: poolsToPB(m.Pools),
	}
	for i := range m.Hardware {
		h := &m.Hardware[i]
		p.Hardware[i] = &capacitypb.Hardware{Name: h.Name, Ready: uint64(h.Ready), PrefillRate: uint64(h.PrefillRate), DecodeRate: uint64(h.DecodeRate)}
		setUnknown(p.Hardware[i], h.unknown)
	}
	for _, x := range m.Prefixes {
		p.PrefixHashes = append(p.PrefixHashes, x.Hash)
		p.PrefixTokens = append(p.PrefixTokens, uint64(x.Tokens))
	}
	setUnknown(p, m.unknown)
	return p
}

// classesToPB omits the zeros of an idle model.
func classesToPB(v *[spec.NumClasses]int64) []uint64 {
	if *v == [spec.NumClasses]int64{} {
		return nil
	}
	out := make([]uint64, len(v))
	for i := range v {
		out[i] = uint64(v[i])
	}
	return out
}

func demandToPB(d *CellDemand) *capacitypb.Demand {
	p := &capacitypb.Demand{
		Service: d.Service, Model: d.Model, Cell: d.Cell,
		TokensPerSec: uint64(d.TokensPerSec), RequestsPerSecMilli: uint64(d.RequestsPerSecMilli),
	}
	setUnknown(p, d.unknown)
	return p
}

func summaryFromPB(p *capacitypb.Summary) (*Summary, error) {
	if len(p.Models) > MaxModels || len(p.Acks) > MaxAcks || len(p.Demand) > MaxDemand || len(p.Rtts) > MaxRTTs || len(p.Networks) > MaxNetworks || len(p.Uses) > MaxTenantUsages {
		return nil, fmt.Errorf("%d models, %d acks, %d demands, %d round trips, %d networks, %d uses: over the limits",
			len(p.Models), len(p.Acks), len(p.Demand), len(p.Rtts), len(p.Networks), len(p.Uses))
	}
	s := &Summary{
		Path: Path{Region: p.Path.GetRegion(), Zone: p.Path.GetZone(), Instance: p.Path.GetInstance()},
		Boot: p.Boot, Seq: p.Seq, Endpoint: p.Endpoint, Draining: p.Draining, unknown: getUnknown(p),
	}
	if len(p.Models) > 0 {
		s.Models = make([]*ModelCapacity, len(p.Models)) // exact capacity: a parent holds them as long as the session lasts
	}
	for i, pm := range p.Models {
		m, err := modelFromPB(pm)
		if err != nil {
			return nil, err
		}
		s.Models[i] = m
	}
	for _, a := range p.Acks {
		s.Acks = append(s.Acks, LedgerAck{Parent: a.Parent, Boot: a.Boot, Ticket: a.Ticket, unknown: getUnknown(a)})
	}
	for _, d := range p.Demand {
		s.Demand = append(s.Demand, demandFromPB(d))
	}
	s.RTTs, s.Networks = rttsFromPB(p.Rtts), networksFromPB(p.Networks)
	s.TenantUsages, s.HeldLeases = usagesFromPB(p.Uses), heldLeasesFromPB(p.Holding)
	var err error
	s.Outcomes, err = outcomesFromPB(p.Outcomes)
	return s, err
}

func modelFromPB(p *capacitypb.Model) (*ModelCapacity, error) {
	if len(p.Hardware) > MaxHardware || len(p.PrefixHashes) > MaxPrefixes || len(p.PrefixHashes) != len(p.PrefixTokens) {
		return nil, fmt.Errorf("%d hardware types, prefix columns of %d and %d: over the limits or unequal", len(p.Hardware), len(p.PrefixHashes), len(p.PrefixTokens))
	}
	if len(p.Ahead) > spec.NumClasses || len(p.Headroom) > spec.NumClasses {
		return nil, fmt.Errorf("amounts for %d and %d classes: there are %d", len(p.Ahead), len(p.Headroom), spec.NumClasses)
	}
	m := &ModelCapacity{
		Name: p.Name, Ready: toAmount(p.Ready), Total: toAmount(p.Total),
		KVTotal: toAmount(p.KvTotal), KVFree: toAmount(p.KvFree), SlotsTotal: toAmount(p.SlotsTotal), SlotsFree: toAmount(p.SlotsFree),
		Running: toAmount(p.Running), Queued: toAmount(p.Queued), Backlog: toAmount(p.Backlog),
		Warm: toAmount(p.Warm), Cold: toAmount(p.Cold), CostMicros: toAmount(p.CostMicros), MaxContext: toAmount(p.MaxContext),
		WarmMillis: toAmount(p.WarmMillis), ColdMillis: toAmount(p.ColdMillis),
		unknown: getUnknown(p),
	}
	var err error
	if m.Pools, err = poolsFromPB(p.Pools); err != nil {
		return nil, err
	}
	for i, n := range p.Ahead {
		m.WorkAhead[i] = toAmount(n)
	}
	for i, n := range p.Headroom {
		m.Headroom[i] = toAmount(n)
	}
	for _, h := range p.Hardware {
		m.Hardware = append(m.Hardware, HardwareRates{Name: h.Name, Ready: toAmount(h.Ready), PrefillRate: toAmount(h.PrefillRate), DecodeRate: toAmount(h.DecodeRate), unknown: getUnknown(h)})
	}
	for i, h := range p.PrefixHashes {
		m.Prefixes = append(m.Prefixes, PrefixEntry{Hash: h, Tokens: toAmount(p.PrefixTokens[i])})
	}
	return m, nil
}

func demandFromPB(p *capacitypb.Demand) CellDemand {
	return CellDemand{
		Service: p.Service, Model: p.Model, Cell: p.Cell,
		TokensPerSec: toAmount(p.TokensPerSec), RequestsPerSecMilli: toAmount(p.RequestsPerSecMilli), unknown: getUnknown(p),
	}
}

// toAmount returns -1, which checkAmount refuses, for a value over the range of int64.
func toAmount(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}
