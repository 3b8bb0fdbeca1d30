package uplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/quic-go/quic-go"
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
