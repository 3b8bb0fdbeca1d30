package uplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ALPN names the protocol in the TLS handshake.
const ALPN = "spillway-uplink/1"

// Versions of the messages that this package supports. Version 2 has patches in deltas (see capacity.ModelPatch).
const (
	protocolVersion      = 2
	minProtocolVersion   = 1
	patchProtocolVersion = 2
)

// Limits of messages, in bytes.
const (
	maxHelloBytes     = 4 << 10
	maxDatagramBytes  = 1100 // fits the smallest QUIC packet with room for its header
	maxDirectiveBytes = 4 << 20
	// MaxQueryBytes bounds the payload of QueryChild and its answer.
	MaxQueryBytes = 1 << 20
)

// The first byte of a datagram or of a stream after the control stream. Unknown kinds are skipped.
const (
	kindDelta        = 1
	kindSnapshot     = 2
	kindConfirmation = 3
	kindDirective    = 4
	kindQuery        = 5
	kindHeldSpec     = 6
)

// snapshotConfirmed is the one byte that answers a snapshot.
const snapshotConfirmed = 1

// maxConfirmationBytes is the length of the longest confirmation.
const maxConfirmationBytes = 1 + 4*(1+binary.MaxVarintLen64)

// appendConfirmation appends a confirmation: its kind and an uplinkpb.Heard. A parent sends thousands per second.
func appendConfirmation(b []byte, boot, seq uint64, gap time.Duration, resync bool) []byte {
	b = append(b, kindConfirmation)
	for i, n := range [...]uint64{boot, seq, uint64(gap.Milliseconds()), protowire.EncodeBool(resync)} {
		if n != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(i+1), protowire.VarintType), n)
		}
	}
	return b
}

// writeFrame writes a length and the message: only the control stream has more than one message.
func writeFrame(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if len(b) > maxHelloBytes {
		return ErrTooLarge
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readFrame(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxHelloBytes {
		return wrapMalformed(ErrTooLarge)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return wrapMalformed(err)
	}
	return nil
}

// readMessage reads a whole stream: its kind and at most limit bytes.
func readMessage(r io.Reader, limit int) (kind byte, body []byte, err error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+2))
	switch {
	case err != nil:
		return 0, nil, err
	case len(b) == 0:
		return 0, nil, wrapMalformed(io.ErrUnexpectedEOF)
	case len(b) > limit+1:
		return 0, nil, wrapMalformed(ErrTooLarge)
	}
	return b[0], b[1:], nil
}

// malformedError marks what no correct peer sends, as opposed to a broken link.
type malformedError struct{ err error }

func (e *malformedError) Error() string { return "peer sends malformed data: " + e.err.Error() }
func (e *malformedError) Unwrap() error { return e.err }

func wrapMalformed(err error) error { return &malformedError{err} }

func isMalformed(err error) bool {
	var r *malformedError
	return errors.As(err, &r)
}

// What QueryChild may return besides context errors and the child's own answer.
var (
	// ErrNoChild means that no child of that path has a session.
	ErrNoChild = errors.New("no session with that child")
	// ErrStopped means that the Parent or Child is stopped or was never started.
	ErrStopped = errors.New("uplink is not running")
	// ErrTooLarge means that a message exceeds its limit.
	ErrTooLarge = errors.New("message is larger than the limit")
)

// QueryError is a child's error answer to QueryChild.
type QueryError struct{ Message string }

// Error returns the child's text.
func (e *QueryError) Error() string { return "child answered: " + e.Message }

// Why a session was closed, as QUIC application error codes.
const (
	codeShutdown  quic.ApplicationErrorCode = iota // clean stop
	codeReplaced                                   // the same path has a newer session
	codeRefused                                    // the claim does not match the certificate
	codeMalformed                                  // a message that no correct peer sends
	codeVersion                                    // no common version
	codeFull                                       // the parent has its maximum number of children
	codeSilent                                     // the parent receives nothing
	codeFlood                                      // far more messages than a child needs to send
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
