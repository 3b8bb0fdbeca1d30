// Package zmtp implements ZeroMQ's wire protocol, ZMTP 3, as far as engines' cache events need it: one TCP
// connection, the NULL mechanism, messages of a few frames, and topic subscriptions. OpenPeer performs the
// handshake, PeerConn sends and receives.
//
// The existing pure Go library allocates as many bytes as a peer announces: nine bytes from a worker, or from
// any process on its port, can terminate the receiver. It also has no deadline on handshakes, leaks the socket
// of a failed one, and leaks goroutines when closed. Here every length is checked before a byte is kept, memory
// grows with received data and not with announced lengths, and a connection starts no goroutine: its owner
// reads and closes it.
//
// It never reconnects, never queues, and has no sockets in the sense of ZeroMQ: callers build those.
package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	// MaxMessageBytes bounds all frames of one message, in bytes.
	MaxMessageBytes = 4 << 20
	// MaxFrames bounds the frames of one message.
	MaxFrames       = 8
	maxCommandBytes = 4096
	// maxKeptBuffer is the largest buffer kept between messages, in bytes.
	maxKeptBuffer = 256 << 10
	// readChunkBytes is the read size of a long frame, so that memory grows with the received data.
	readChunkBytes = 64 << 10
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// ErrTooLarge is wrapped when a message exceeds its bounds. Nothing can be read after it.
var ErrTooLarge = errors.New("a ZeroMQ message is over its bounds")

// PeerConn is one connection after its handshake. One goroutine may read while another writes.
type PeerConn struct {
	writer    io.Writer
	reader    *bufio.Reader
	buf       []byte
	frameEnds [MaxFrames]int
	frames    [][]byte
	outBuf    []byte
}

func newPeerConn(rw io.ReadWriter) *PeerConn {
	return &PeerConn{writer: rw, reader: bufio.NewReaderSize(rw, 32<<10)}
}

// ReceiveMessage returns the frames of the next message, valid until the next call. It answers pings.
func (z *PeerConn) ReceiveMessage() ([][]byte, error) {
	if cap(z.buf) > maxKeptBuffer {
		z.buf = nil
	}
	z.buf = z.buf[:0]
	n := 0
	for {
		start := len(z.buf)
		flags, b, err := z.readFrame(z.buf, MaxMessageBytes)
		if err != nil {
			return nil, fmt.Errorf("reading a ZeroMQ message: %w", err)
		}
		z.buf = b
		if flags&flagCommand != 0 {
			if err := z.answerCommand(z.buf[start:]); err != nil {
				return nil, fmt.Errorf("answering a ZeroMQ command: %w", err)
			}
			z.buf = z.buf[:start]
			continue
		}
		if n == MaxFrames {
			return nil, fmt.Errorf("%w: more than %d frames", ErrTooLarge, MaxFrames)
		}
		z.frameEnds[n] = len(z.buf)
		n++
		if flags&flagMore == 0 {
			return z.splitFrames(n), nil
		}
	}
}

// splitFrames slices the frames from the buffer, which has moved while it grew.
func (z *PeerConn) splitFrames(n int) [][]byte {
	z.frames = z.frames[:0]
	at := 0
	for _, end := range z.frameEnds[:n] {
		z.frames = append(z.frames, z.buf[at:end:end])
		at = end
	}
	return z.frames
}

// readFrame appends the next frame's body to b, which may grow up to limit.
func (z *PeerConn) readFrame(b []byte, limit int) (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(z.reader, head[:2]); err != nil {
		return 0, b, err
	}
	size := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err := io.ReadFull(z.reader, head[2:]); err != nil {
			return 0, b, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > uint64(limit-len(b)) || head[0]&flagCommand != 0 && size > maxCommandBytes {
		return 0, b, fmt.Errorf("%w: a frame of %d bytes", ErrTooLarge, size)
	}
	for left := int(size); left > 0; {
		n := min(left, readChunkBytes)
		at := len(b)
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(z.reader, b[at:]); err != nil {
			return 0, b[:at], err
		}
		left -= n
	}
	return head[0], b, nil
}

// answerCommand answers a ping with its context, and ignores other commands.
func (z *PeerConn) answerCommand(body []byte) error {
	name, rest, ok := splitCommand(body)
	if !ok || name != "PING" || len(rest) < 2 {
		return nil
	}
	return z.writeFrame(flagCommand, append(append([]byte{4}, "PONG"...), rest[2:min(len(rest), 18)]...))
}

// SendMessage writes one message in one write.
func (z *PeerConn) SendMessage(frames ...[]byte) error {
	z.outBuf = z.outBuf[:0]
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		z.outBuf = appendFrame(z.outBuf, flags, f)
	}
	if _, err := z.writer.Write(z.outBuf); err != nil {
		return fmt.Errorf("writing a ZeroMQ message: %w", err)
	}
	if cap(z.outBuf) > maxKeptBuffer {
		z.outBuf = nil
	}
	return nil
}

// SubscribeTopic subscribes to the topics with a prefix; the empty prefix means all.
func (z *PeerConn) SubscribeTopic(topic string) error {
	return z.SendMessage(append([]byte{1}, topic...))
}

func (z *PeerConn) writeFrame(flags byte, body []byte) error {
	_, err := z.writer.Write(appendFrame(nil, flags, body))
	return err
}

func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

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
