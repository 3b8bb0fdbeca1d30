package uplink

import (
	"errors"
	"fmt"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

var (
	errVersion           = errors.New("no common protocol version: upgrade the older side")
	errClaimMismatch     = errors.New("its certificate names another identity")
	errDuplicateInstance = errors.New("the clock was set back, or two instances share this certificate")
)

// PathOf returns the subtree that the holder of a certificate may report.
func PathOf(id identity.ID) (capacity.Path, error) {
	switch id.Role {
	case identity.RoleGateway:
		return capacity.Path{Region: id.Region, Instance: id.Name}, nil
	case identity.RoleLocal:
		return capacity.Path{Region: id.Region, Zone: id.Zone, Instance: id.Name}, nil
	}
	return capacity.Path{}, fmt.Errorf("%s represents no subtree: only gateways and local instances report to a parent", id)
}

func newHello(p capacity.Path, boot uint64, endpoint string) *uplinkpb.Hello {
	return &uplinkpb.Hello{
		Version: protocolVersion, MinVersion: minProtocolVersion,
		Region: p.Region, Zone: p.Zone, Instance: p.Instance, Boot: boot, Endpoint: endpoint,
	}
}

// checkHello compares the claim with the certificate.
func checkHello(h *uplinkpb.Hello, id identity.ID) (capacity.Path, error) {
	want, err := PathOf(id)
	if err != nil {
		return want, err
	}
	if got := (capacity.Path{Region: h.Region, Zone: h.Zone, Instance: h.Instance}); got != want {
		return want, fmt.Errorf("%s claims to be %q: %w", id, got.String(), errClaimMismatch)
	}
	if len(h.Endpoint) > capacity.MaxName {
		return want, wrapMalformed(ErrTooLarge)
	}
	return want, nil
}

// agreeVersion returns the highest version that both sides support.
func agreeVersion(theirs, theirMin uint32) (uint32, error) {
	v := min(theirs, protocolVersion)
	if v < minProtocolVersion || v < theirMin {
		return 0, errVersion
	}
	return v, nil
}
