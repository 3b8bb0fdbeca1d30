package uplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// ALPN names the protocol in the TLS handshake.
const ALPN = "spillway-uplink/1"

// Versions of the messages that this package speaks. Version 2 has patches in deltas (see capacity.Patch).
const (
	version          = 2
	minVersion       = 1
	versionOfPatches = 2
)

// Limits of messages, in bytes.
const (
	maxHello     = 4 << 10
	maxDatagram  = 1100 // fits the smallest QUIC packet with room for its header
	maxDirective = 4 << 20
	// MaxAsk bounds an Ask's payload and its answer's.
	MaxAsk = 1 << 20
)

// The first byte of a datagram or of a stream after the control stream. Unknown kinds are passed over.
const (
	kindDelta     = 1
	kindSnapshot  = 2
	kindHeard     = 3
	kindDirective = 4
	kindAsk       = 5
	kindHeld      = 6
)

// confirmed is the one byte that answers a snapshot.
const confirmed = 1

// writeFrame writes a length and the message: only the control stream has more than one message.
func writeFrame(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if len(b) > maxHello {
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
	if n > maxHello {
		return rubbish(ErrTooLarge)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return rubbish(err)
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
		return 0, nil, rubbish(io.ErrUnexpectedEOF)
	case len(b) > limit+1:
		return 0, nil, rubbish(ErrTooLarge)
	}
	return b[0], b[1:], nil
}

// rubbishError marks what no honest peer sends, as against a link that broke.
type rubbishError struct{ err error }

func (e *rubbishError) Error() string { return "peer sends rubbish: " + e.err.Error() }
func (e *rubbishError) Unwrap() error { return e.err }

func rubbish(err error) error { return &rubbishError{err} }

func isRubbish(err error) bool {
	var r *rubbishError
	return errors.As(err, &r)
}
