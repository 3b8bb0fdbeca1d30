package uplink

import (
	"errors"
	"fmt"
	"time"

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

// Boot numbers are start times in Unix nanoseconds. One far ahead of the clock is never valid, and accepting it would
// leave no greater number for the next start. The bound on a child is below that on a parent, so that a parent whose
// clock is behind still accepts any boot to which a child may raise its own.
const (
	// maxChildBootLead is how far ahead of its clock a child accepts a parent's HeldBoot.
	maxChildBootLead = 24 * time.Hour
	// maxParentBootLead is how far ahead of its clock a parent accepts the boot of a child.
	maxParentBootLead = 2 * maxChildBootLead
)

var errBootTooFarAhead = errors.New("its boot number is too far ahead of this node's clock: set the clocks of both nodes")

// maxBoot is the greatest boot that is accepted at now.
func maxBoot(now time.Time, ahead time.Duration) uint64 {
	return uint64(max(now.Add(ahead).UnixNano(), 0))
}

// checkBoot refuses a boot that is too far ahead of now.
func checkBoot(boot uint64, now time.Time) error {
	if limit := maxBoot(now, maxParentBootLead); boot > limit {
		return fmt.Errorf("boot %d, at most %d: %w", boot, limit, errBootTooFarAhead)
	}
	return nil
}
