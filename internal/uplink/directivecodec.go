package uplink

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// Limits on the content of a Directive.
const (
	maxDrains         = 4096
	maxPeers          = 256
	maxGateways       = 64 // of a region; spec.MaxGateways is not greater
	maxTicketKeys     = 8
	maxTicketKeyBytes = 64
	maxTextBytes      = 1024
)

// encodeDirective encodes a directive. With specOf other than 0 the spec is left out: the child holds it from the
// directive of that order. It counts what it had to leave out (see fitDirective).
func encodeDirective(order, specOf uint64, d *Directive) ([]byte, omittedCounts, error) {
	if err := d.checkPolicy(); err != nil {
		return nil, omittedCounts{}, fmt.Errorf("encoding directive: %w", err)
	}
	p := &uplinkpb.Directive{
		Order: order, Index: d.Index, SpecVersion: d.SpecVersion, PlanEpoch: d.PlanEpoch, TicketKeys: d.TicketKeys, SpecOf: specOf,
		PrefixSeed: d.PrefixSeed, Locals: gatewaysToPB(d.ZoneInstances), Generation: d.Generation,
	}
	if specOf == 0 {
		p.Spec = d.Spec
	}
	if d.StageNumber != 0 {
		p.Stage = &uplinkpb.Stage{Number: d.StageNumber, Candidate: d.IsStaged}
	}
	p.Grant = grantToPB(d.Grant)
	for _, x := range d.Drains {
		w := &uplinkpb.Drain{Path: x.Path, Reason: x.Reason}
		if !x.Until.IsZero() {
			w.UntilUnixNano = x.Until.UnixNano()
		}
		if x.Over > 0 && !x.Start.IsZero() {
			w.StartUnixNano, w.OverNano = x.Start.UnixNano(), int64(x.Over)
		}
		p.Drains = append(p.Drains, w)
	}
	left := fitDirective(p, d.Peers)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, left, fmt.Errorf("encoding directive: %w", err)
	}
	if len(b) > maxDirectiveBytes {
		return nil, left, fmt.Errorf("encoding directive: %d bytes of spec, drains and grants alone: %w", len(b), ErrTooLarge)
	}
	return b, left, nil
}

func peerToPB(x *PeerRegion) (*uplinkpb.Peer, error) {
	w := &uplinkpb.Peer{Region: x.Region, AgeNano: int64(x.Age), RttNano: int64(x.RTT), RttSamples: uint64(max(x.RTTSamples, 0))}
	w.Gateways = gatewaysToPB(x.Gateways)
	if x.Summary == nil {
		return w, nil
	}
	s := capacity.FitToLimits(*x.Summary)
	b, err := capacity.EncodeSummary(&s)
	if err != nil {
		return nil, fmt.Errorf("encoding peer %s: %w", x.Region, err)
	}
	w.Summary = b
	return w, nil
}

func gatewaysToPB(gs []PeerGateway) (out []*uplinkpb.Gateway) {
	for _, g := range gs {
		out = append(out, &uplinkpb.Gateway{Name: g.Name, Endpoint: g.Endpoint})
	}
	return out
}

func gatewaysFromPB(gs []*uplinkpb.Gateway) (out []PeerGateway) {
	for _, g := range gs {
		out = append(out, PeerGateway{Name: g.Name, Endpoint: g.Endpoint})
	}
	return out
}

func decodeDirective(b []byte) (order, specOf uint64, d *Directive, err error) {
	if len(b) > maxDirectiveBytes {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", ErrTooLarge)
	}
	var p uplinkpb.Directive
	if err := proto.Unmarshal(b, &p); err != nil {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", err)
	}
	d = &Directive{
		Generation: p.Generation, Index: p.Index, SpecVersion: p.SpecVersion, Spec: p.Spec, PlanEpoch: p.PlanEpoch, TicketKeys: p.TicketKeys,
		StageNumber: p.Stage.GetNumber(), IsStaged: p.Stage.GetNumber() != 0 && p.Stage.GetCandidate(),
	}
	if len(p.Drains) > maxDrains || len(p.Peers) > maxPeers || len(p.Locals) > maxGateways {
		return 0, 0, nil, errors.New("decoding directive: too many drains, peers or locals")
	}
	d.Grant = grantFromPB(p.Grant)
	d.PrefixSeed, d.ZoneInstances = p.PrefixSeed, gatewaysFromPB(p.Locals)
	for _, w := range p.Drains {
		x := ActiveDrain{Path: w.Path, Reason: w.Reason}
		if w.UntilUnixNano != 0 {
			x.Until = time.Unix(0, w.UntilUnixNano)
		}
		if w.OverNano > 0 && w.StartUnixNano != 0 {
			x.Start, x.Over = time.Unix(0, w.StartUnixNano), time.Duration(w.OverNano)
		}
		d.Drains = append(d.Drains, x)
	}
	for _, w := range p.Peers {
		x, err := peerFromPB(w)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("decoding directive: %w", err)
		}
		d.Peers = append(d.Peers, x)
	}
	if err := d.checkDirective(); err != nil {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", err)
	}
	return p.Order, p.SpecOf, d, nil
}

func peerFromPB(w *uplinkpb.Peer) (PeerRegion, error) {
	x := PeerRegion{Region: w.Region, Age: time.Duration(w.AgeNano), RTT: time.Duration(w.RttNano), RTTSamples: int64(min(w.RttSamples, capacity.MaxAmount))}
	if len(w.Gateways) > maxGateways {
		return x, errors.New("too many gateways")
	}
	x.Gateways = gatewaysFromPB(w.Gateways)
	if len(w.Summary) == 0 {
		return x, nil
	}
	s, err := capacity.DecodeSummary(w.Summary)
	x.Summary = s
	return x, err
}

func (d *Directive) checkDirective() error {
	if len(d.Peers) > maxPeers {
		return fmt.Errorf("%d peers: over the limit of %d", len(d.Peers), maxPeers)
	}
	for i := range d.Peers {
		if err := d.Peers[i].checkPeer(); err != nil {
			return err
		}
	}
	return d.checkPolicy()
}

// checkPolicy checks all parts but the peers.
func (d *Directive) checkPolicy() error {
	if len(d.Drains) > maxDrains || len(d.TicketKeys) > maxTicketKeys {
		return fmt.Errorf("%d drains, %d ticket keys: over the limits of %d, %d", len(d.Drains), len(d.TicketKeys), maxDrains, maxTicketKeys)
	}
	for _, k := range d.TicketKeys {
		if len(k) == 0 || len(k) > maxTicketKeyBytes {
			return errors.New("a ticket key has an odd length")
		}
	}
	if err := d.Grant.checkGrant(); err != nil {
		return err
	}
	for _, x := range d.Drains {
		if x.Path == "" || len(x.Path) > maxTextBytes || len(x.Reason) > maxTextBytes {
			return errors.New("a drain has no path or too long a text")
		}
	}
	if len(d.ZoneInstances) > maxGateways {
		return fmt.Errorf("%d instances of a zone: over the limit of %d", len(d.ZoneInstances), maxGateways)
	}
	return checkGateways("the zone", d.ZoneInstances)
}

func (x *PeerRegion) checkPeer() error {
	if x.Region == "" || len(x.Region) > capacity.MaxName || len(x.Gateways) > maxGateways || x.Age < 0 || x.RTT < 0 {
		return fmt.Errorf("peer %.64q: no name, too many gateways, or a negative age or RTT", x.Region)
	}
	return checkGateways("peer "+x.Region, x.Gateways)
}

func checkGateways(of string, gs []PeerGateway) error {
	for _, g := range gs {
		if len(g.Name) > capacity.MaxName || len(g.Endpoint) > capacity.MaxName {
			return fmt.Errorf("%s: an instance's name or endpoint is too long", of)
		}
	}
	return nil
}
