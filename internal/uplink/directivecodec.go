package uplink

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// Limits on what a Directive holds.
const (
	maxDrains     = 4096
	maxPeers      = 256
	maxGateways   = 64 // of a region; spec.MaxGateways is not greater
	maxTicketKeys = 8
	maxKeyBytes   = 64
	maxText       = 1024
)

// encodeDirective writes a directive. With specOf other than 0 the spec is left out: the child holds it from the directive
// of that order. It counts what it had to leave out (see fitDirective).
func encodeDirective(order, specOf uint64, d *Directive) ([]byte, omitted, error) {
	if err := d.checkPolicy(); err != nil {
		return nil, omitted{}, fmt.Errorf("encoding directive: %w", err)
	}
	p := &uplinkpb.Directive{
		Order: order, Index: d.Index, SpecVersion: d.SpecVersion, PlanEpoch: d.PlanEpoch, TicketKeys: d.TicketKeys, SpecOf: specOf,
		PrefixSeed: d.PrefixSeed, Locals: gatewaysToPB(d.Locals), Generation: d.Generation,
	}
	if specOf == 0 {
		p.Spec = d.Spec
	}
	if d.Stage != 0 {
		p.Stage = &uplinkpb.Stage{Number: d.Stage, Candidate: d.Candidate}
	}
	p.Grant = grantToPB(d.Grant)
	for _, x := range d.Drains {
		w := &uplinkpb.Drain{Path: x.Path, Reason: x.Reason}
		if !x.Until.IsZero() {
			w.UntilUnixNano = x.Until.UnixNano()
		}
		p.Drains = append(p.Drains, w)
	}
	left := fitDirective(p, d.Peers)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, left, fmt.Errorf("encoding directive: %w", err)
	}
	if len(b) > maxDirective {
		return nil, left, fmt.Errorf("encoding directive: %d bytes of spec, drains and grants alone: %w", len(b), ErrTooLarge)
	}
	return b, left, nil
}

func peerToPB(x *Peer) (*uplinkpb.Peer, error) {
	w := &uplinkpb.Peer{Region: x.Region, AgeNano: int64(x.Age), RttNano: int64(x.RTT), RttSamples: uint64(max(x.RTTSamples, 0))}
	w.Gateways = gatewaysToPB(x.Gateways)
	if x.Summary == nil {
		return w, nil
	}
	s := capacity.Fit(*x.Summary)
	b, err := capacity.Encode(&s)
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
	if len(b) > maxDirective {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", ErrTooLarge)
	}
	var p uplinkpb.Directive
	if err := proto.Unmarshal(b, &p); err != nil {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", err)
	}
	d = &Directive{
		Generation: p.Generation, Index: p.Index, SpecVersion: p.SpecVersion, Spec: p.Spec, PlanEpoch: p.PlanEpoch, TicketKeys: p.TicketKeys,
		Stage: p.Stage.GetNumber(), Candidate: p.Stage.GetNumber() != 0 && p.Stage.GetCandidate(),
	}
	if len(p.Drains) > maxDrains || len(p.Peers) > maxPeers || len(p.Locals) > maxGateways {
		return 0, 0, nil, errors.New("decoding directive: too many drains, peers or locals")
	}
	d.Grant = grantFromPB(p.Grant)
	d.PrefixSeed, d.Locals = p.PrefixSeed, gatewaysFromPB(p.Locals)
	for _, w := range p.Drains {
		x := Drain{Path: w.Path, Reason: w.Reason}
		if w.UntilUnixNano != 0 {
			x.Until = time.Unix(0, w.UntilUnixNano)
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
	if err := d.check(); err != nil {
		return 0, 0, nil, fmt.Errorf("decoding directive: %w", err)
	}
	return p.Order, p.SpecOf, d, nil
}

func peerFromPB(w *uplinkpb.Peer) (Peer, error) {
	x := Peer{Region: w.Region, Age: time.Duration(w.AgeNano), RTT: time.Duration(w.RttNano), RTTSamples: int64(min(w.RttSamples, capacity.MaxAmount))}
	if len(w.Gateways) > maxGateways {
		return x, errors.New("too many gateways")
	}
	x.Gateways = gatewaysFromPB(w.Gateways)
	if len(w.Summary) == 0 {
		return x, nil
	}
	s, err := capacity.Decode(w.Summary)
	x.Summary = s
	return x, err
}

func (d *Directive) check() error {
	if len(d.Peers) > maxPeers {
		return fmt.Errorf("%d peers: over the limit of %d", len(d.Peers), maxPeers)
	}
	for i := range d.Peers {
		if err := d.Peers[i].check(); err != nil {
			return err
		}
	}
	return d.checkPolicy()
}

// checkPolicy is check for all but the peers.
func (d *Directive) checkPolicy() error {
	if len(d.Drains) > maxDrains || len(d.TicketKeys) > maxTicketKeys {
		return fmt.Errorf("%d drains, %d ticket keys: over the limits of %d, %d", len(d.Drains), len(d.TicketKeys), maxDrains, maxTicketKeys)
	}
	for _, k := range d.TicketKeys {
		if len(k) == 0 || len(k) > maxKeyBytes {
			return errors.New("a ticket key has an odd length")
		}
	}
	if err := d.Grant.check(); err != nil {
		return err
	}
	for _, x := range d.Drains {
		if x.Path == "" || len(x.Path) > maxText || len(x.Reason) > maxText {
			return errors.New("a drain has no path or too long a text")
		}
	}
	if len(d.Locals) > maxGateways {
		return fmt.Errorf("%d instances of a zone: over the limit of %d", len(d.Locals), maxGateways)
	}
	return checkGateways("the zone", d.Locals)
}

func (x *Peer) check() error {
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
