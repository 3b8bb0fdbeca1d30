package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxMessage bounds one message, all its frames, in bytes.
	MaxMessage = 4 << 20
	// MaxFrames bounds the frames of one message.
	MaxFrames  = 8
	maxCommand = 4096
	// keep is how large a buffer stays between messages, in bytes.
	keep = 256 << 10
	// piece is how much is read of a long frame at a time, so that memory follows what has come.
	piece = 64 << 10
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// ErrTooLarge is wrapped when a message is over its bounds. Nothing can be read after it.
var ErrTooLarge = errors.New("a ZeroMQ message is over its bounds")

// Conn is one connection after its greeting. One goroutine may read while another writes.
type Conn struct {
	w      io.Writer
	r      *bufio.Reader
	buf    []byte
	ends   [MaxFrames]int
	frames [][]byte
	out    []byte
}

func newConn(rw io.ReadWriter) *Conn {
	return &Conn{w: rw, r: bufio.NewReaderSize(rw, 32<<10)}
}

// Recv returns the frames of the next message, which are good until the next call. Pings are answered on the way.
func (z *Conn) Recv() ([][]byte, error) {
	if cap(z.buf) > keep {
		z.buf = nil
	}
	z.buf = z.buf[:0]
	n := 0
	for {
		start := len(z.buf)
		flags, b, err := z.frame(z.buf, MaxMessage)
		if err != nil {
			return nil, fmt.Errorf("reading a ZeroMQ message: %w", err)
		}
		z.buf = b
		if flags&flagCommand != 0 {
			if err := z.obey(z.buf[start:]); err != nil {
				return nil, fmt.Errorf("answering a ZeroMQ command: %w", err)
			}
			z.buf = z.buf[:start]
			continue
		}
		if n == MaxFrames {
			return nil, fmt.Errorf("%w: more than %d frames", ErrTooLarge, MaxFrames)
		}
		z.ends[n] = len(z.buf)
		n++
		if flags&flagMore == 0 {
			return z.cut(n), nil
		}
	}
}

// cut lays the frames over the buffer, which has moved while it grew.
func (z *Conn) cut(n int) [][]byte {
	z.frames = z.frames[:0]
	at := 0
	for _, end := range z.ends[:n] {
		z.frames = append(z.frames, z.buf[at:end:end])
		at = end
	}
	return z.frames
}

// frame appends the next frame's body to b, which may grow up to limit.
func (z *Conn) frame(b []byte, limit int) (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(z.r, head[:2]); err != nil {
		return 0, b, err
	}
	size := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err := io.ReadFull(z.r, head[2:]); err != nil {
			return 0, b, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > uint64(limit-len(b)) || head[0]&flagCommand != 0 && size > maxCommand {
		return 0, b, fmt.Errorf("%w: a frame of %d bytes", ErrTooLarge, size)
	}
	for left := int(size); left > 0; {
		n := min(left, piece)
		at := len(b)
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(z.r, b[at:]); err != nil {
			return 0, b[:at], err
		}
		left -= n
	}
	return head[0], b, nil
}

// obey answers a ping with its context; every other command says nothing that matters here.
func (z *Conn) obey(body []byte) error {
	name, rest, ok := command(body)
	if !ok || name != "PING" || len(rest) < 2 {
		return nil
	}
	return z.write(flagCommand, append(append([]byte{4}, "PONG"...), rest[2:min(len(rest), 18)]...))
}

// Send writes one message in one piece.
func (z *Conn) Send(frames ...[]byte) error {
	z.out = z.out[:0]
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		z.out = appendFrame(z.out, flags, f)
	}
	if _, err := z.w.Write(z.out); err != nil {
		return fmt.Errorf("writing a ZeroMQ message: %w", err)
	}
	if cap(z.out) > keep {
		z.out = nil
	}
	return nil
}

// Subscribe asks a publisher for the topics that begin so; the empty one means all.
func (z *Conn) Subscribe(topic string) error { return z.Send(append([]byte{1}, topic...)) }

func (z *Conn) write(flags byte, body []byte) error {
	_, err := z.w.Write(appendFrame(nil, flags, body))
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
