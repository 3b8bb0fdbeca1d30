package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// The socket types used here.
const (
	Pub    = "PUB"
	Sub    = "SUB"
	Dealer = "DEALER"
	Router = "ROUTER"
)

// handshakeTimeout bounds a handshake.
const handshakeTimeout = 5 * time.Second

// ErrWrongPeer is wrapped by errors about the other end: it is not a ZeroMQ peer of the wanted type.
var ErrWrongPeer = errors.New("no ZeroMQ peer of the wanted kind")

// acceptedPeerKinds lists the socket types allowed at the other end.
func acceptedPeerKinds(own string) []string {
	switch own {
	case Pub:
		return []string{"SUB", "XSUB"}
	case Sub:
		return []string{"PUB", "XPUB"}
	case Dealer:
		return []string{"ROUTER", "REP", "DEALER"}
	case Router:
		return []string{"DEALER", "REQ", "ROUTER"}
	}
	return nil
}

// OpenPeer performs the handshake on c as a socket of type own. On an error the caller closes c.
func OpenPeer(c net.Conn, own string) (*PeerConn, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	z := newPeerConn(c)
	if err := z.shakeHands(own); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	return z, nil
}

const greetingBytes = 64

// buildGreeting returns the greeting of version 3.0 with the NULL mechanism.
func buildGreeting() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:32], "NULL")
	return g
}

func (z *PeerConn) shakeHands(own string) error {
	if _, err := z.writer.Write(buildGreeting()); err != nil {
		return err
	}
	var g [greetingBytes]byte
	if _, err := io.ReadFull(z.reader, g[:]); err != nil {
		return err
	}
	switch {
	case g[0] != 0xff || g[9]&1 != 1 || g[10] < 3:
		return fmt.Errorf("%w: its first bytes are not ZMTP 3", ErrWrongPeer)
	case string(bytes.TrimRight(g[12:32], "\x00")) != "NULL":
		return fmt.Errorf("%w: it wants a key (mechanism %q), and only NULL is spoken", ErrWrongPeer, bytes.TrimRight(g[12:32], "\x00"))
	}
	if err := z.writeFrame(flagCommand, buildReady(own)); err != nil {
		return err
	}
	flags, body, err := z.readFrame(nil, maxCommandBytes)
	if err != nil {
		return err
	}
	name, rest, ok := splitCommand(body)
	if flags&flagCommand == 0 || !ok || name != "READY" {
		return fmt.Errorf("%w: it does not say READY", ErrWrongPeer)
	}
	kind := findProperty(rest, "socket-type")
	if !slices.Contains(acceptedPeerKinds(own), kind) {
		return fmt.Errorf("%w: it is a %q socket and this a %s", ErrWrongPeer, kind, own)
	}
	return nil
}

// buildReady returns the body of a READY command.
func buildReady(own string) []byte {
	b := append([]byte{5}, "READY"...)
	for _, p := range [][2]string{{"Socket-Type", own}, {"Identity", ""}} {
		b = append(append(b, byte(len(p[0]))), p[0]...)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p[1]))), p[1]...)
	}
	return b
}

// splitCommand splits the name off a command.
func splitCommand(b []byte) (name string, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return "", nil, false
	}
	return string(b[1 : 1+b[0]]), b[1+b[0]:], true
}

// findProperty returns a value in the metadata of a command; names are compared ignoring case.
func findProperty(b []byte, want string) string {
	for {
		name, rest, ok := splitCommand(b)
		if !ok || len(rest) < 4 {
			return ""
		}
		n := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(n) > uint64(len(rest)) {
			return ""
		}
		if string(bytes.ToLower([]byte(name))) == want {
			return string(rest[:n])
		}
		b = rest[n:]
	}
}
