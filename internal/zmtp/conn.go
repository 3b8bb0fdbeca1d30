package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
