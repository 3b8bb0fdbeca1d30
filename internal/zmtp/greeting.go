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

// The kinds of socket that meet here.
const (
	Pub    = "PUB"
	Sub    = "SUB"
	Dealer = "DEALER"
	Router = "ROUTER"
)

// handshakeTimeout bounds a handshake.
const handshakeTimeout = 5 * time.Second

// ErrPeer is wrapped by errors about what the other end says: it is no ZeroMQ peer of the kind that is wanted.
var ErrPeer = errors.New("no ZeroMQ peer of the wanted kind")

// meets lists which kinds may be at the other end.
func meets(own string) []string {
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

// Open greets the other end of c as a socket of one kind. On an error the caller closes c.
func Open(c net.Conn, own string) (*Conn, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	z := newConn(c)
	if err := z.greet(own); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("greeting a ZeroMQ peer: %w", err)
	}
	return z, nil
}

const greetingBytes = 64

// greeting is version 3.0 with the NULL mechanism.
func greeting() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:32], "NULL")
	return g
}

func (z *Conn) greet(own string) error {
	if _, err := z.w.Write(greeting()); err != nil {
		return err
	}
	var g [greetingBytes]byte
	if _, err := io.ReadFull(z.r, g[:]); err != nil {
		return err
	}
	switch {
	case g[0] != 0xff || g[9]&1 != 1 || g[10] < 3:
		return fmt.Errorf("%w: its first bytes are not ZMTP 3", ErrPeer)
	case string(bytes.TrimRight(g[12:32], "\x00")) != "NULL":
		return fmt.Errorf("%w: it wants a key (mechanism %q), and only NULL is spoken", ErrPeer, bytes.TrimRight(g[12:32], "\x00"))
	}
	if err := z.write(flagCommand, ready(own)); err != nil {
		return err
	}
	flags, body, err := z.frame(nil, maxCommand)
	if err != nil {
		return err
	}
	name, rest, ok := command(body)
	if flags&flagCommand == 0 || !ok || name != "READY" {
		return fmt.Errorf("%w: it does not say READY", ErrPeer)
	}
	kind := property(rest, "socket-type")
	if !slices.Contains(meets(own), kind) {
		return fmt.Errorf("%w: it is a %q socket and this a %s", ErrPeer, kind, own)
	}
	return nil
}

// ready is the body of a READY command.
func ready(own string) []byte {
	b := append([]byte{5}, "READY"...)
	for _, p := range [][2]string{{"Socket-Type", own}, {"Identity", ""}} {
		b = append(append(b, byte(len(p[0]))), p[0]...)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p[1]))), p[1]...)
	}
	return b
}

// command cuts a command's name off.
func command(b []byte) (name string, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return "", nil, false
	}
	return string(b[1 : 1+b[0]]), b[1+b[0]:], true
}

// property finds a value in a command's metadata; names are compared without regard to case.
func property(b []byte, want string) string {
	for {
		name, rest, ok := command(b)
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
