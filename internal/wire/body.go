package wire

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
)

// errChunk means that a chunked body is not framed as it must be.
var errChunk = errors.New("malformed chunked encoding")

const (
	untilClosed = -1
)

// maxTrailer bounds the lines after the last chunk, in bytes.
const maxTrailer = 8 << 10

type chunkState uint8

const (
	atSize chunkState = iota
	inData
	afterData
	atTrailer
)

// framed takes a message's body out of a link.
type framed struct {
	*link
	left    int64 // bytes, of the body or of a chunk; untilClosed
	chunks  bool
	state   chunkState
	trailer []byte
}

// take decodes what is in the buffer: a piece of the body, which is valid until the link is read again, and io.EOF when
// that was the last. Nothing of either means that more must be read.
func (f *framed) take() ([]byte, error) {
	b := f.buffered()
	switch {
	case f.chunks:
		return f.takeChunks()
	case f.left == untilClosed:
		f.r = f.w
		return b, nil
	}
	n := int(min(int64(len(b)), f.left))
	f.r += n
	if f.left -= int64(n); f.left == 0 {
		return b[:n], io.EOF
	}
	return b[:n], nil
}

// takeChunks joins the pieces of all chunks in the buffer, so that what was written at once goes on at once.
func (f *framed) takeChunks() ([]byte, error) {
	var buf []byte
	if f.buf != nil {
		buf = *f.buf
	}
	from, to := f.r, f.r
	for f.r < f.w {
		switch f.state {
		case inData:
			n := int(min(int64(f.w-f.r), f.left))
			if from == to {
				from, to = f.r, f.r
			}
			copy(buf[to:], buf[f.r:f.r+n])
			to += n
			f.r += n
			if f.left -= int64(n); f.left == 0 {
				f.state = afterData
			}
			continue
		case afterData:
			if f.w-f.r < 2 {
				return buf[from:to], nil
			}
			if buf[f.r] != '\r' || buf[f.r+1] != '\n' {
				return buf[from:to], errChunk
			}
			f.r += 2
			f.state = atSize
			continue
		}
		line, ok := lineOf(buf[f.r:f.w])
		if !ok {
			if f.w-f.r > maxTrailer {
				return buf[from:to], errChunk
			}
			return buf[from:to], nil
		}
		f.r += len(line) + 2
		if f.state == atTrailer {
			if len(line) == 0 {
				if _, ok := fields(string(f.trailer)); !ok {
					return buf[from:to], errChunk
				}
				return buf[from:to], io.EOF
			}
			if f.trailer = append(append(f.trailer, line...), "\r\n"...); len(f.trailer) > maxTrailer {
				return buf[from:to], errChunk
			}
			continue
		}
		size, ok := chunkSize(line)
		if !ok {
			return buf[from:to], errChunk
		}
		f.left, f.state = size, inData
		if size == 0 {
			f.state = atTrailer
		}
	}
	return buf[from:to], nil
}

// lineOf is the first line without its CRLF. A line feed or carriage return alone ends nothing: whoever reads the line
// refuses it.
func lineOf(b []byte) ([]byte, bool) {
	for i := 1; i < len(b); i++ {
		if b[i] == '\n' && b[i-1] == '\r' {
			return b[:i-1], true
		}
	}
	return nil, false
}

// chunkSize reads a chunk's first line: hexadecimal digits, and perhaps extensions, which mean nothing here.
func chunkSize(line []byte) (n int64, ok bool) {
	i := 0
	for ; i < len(line); i++ {
		c := line[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return n, i > 0 && extension(line[i:])
		}
		if i >= 15 {
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, i > 0
}

// extension checks what stands after a chunk's size: white space alone, as some senders pad it, or an extension, which begins
// at once.
func extension(b []byte) bool {
	if len(bytes.Trim(b, " \t")) == 0 {
		return true
	}
	if b[0] != ';' || len(b) > 256 {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// responseBody is an answer's body. Besides Read it offers Next, which copies nothing and holds no buffer while it waits.
type responseBody struct {
	framed
	x *exchange

	mu   sync.Mutex
	pend []byte
	held *[]byte // the buffer of what was handed out last, once the connection is somebody else's
	err  error   // what everything from now on returns
}

// Next returns the next piece, which is valid until the next call of anything, and io.EOF with the last.
func (b *responseBody) Next() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pend) > 0 {
		p := b.pend
		b.pend = nil
		return p, nil
	}
	return b.next()
}

func (b *responseBody) next() ([]byte, error) {
	for b.err == nil {
		p, err := b.take()
		switch {
		case err == io.EOF:
			b.finish()
		case err != nil:
			b.fail(err)
		case len(p) == 0:
			switch err := b.fill(); err {
			case nil:
			case errWait:
				return nil, err
			default:
				b.ended(err)
			}
			continue
		}
		return p, b.err
	}
	b.letGo()
	return nil, b.err
}

// ended is the end of what can be read.
func (b *responseBody) ended(err error) {
	if err == io.EOF && !b.chunks && b.left == untilClosed {
		b.fail(io.EOF)
		return
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	b.fail(b.x.reason(err))
}

// finish gives the connection back. The buffer stays here: the last piece is in it.
func (b *responseBody) finish() {
	if len(b.trailer) > 0 {
		if h, ok := fields(string(b.trailer)); ok {
			if b.x.resp.Trailer == nil {
				b.x.resp.Trailer = h
			}
			maps.Copy(b.x.resp.Trailer, h)
		}
	}
	whole := b.r == b.w
	b.held, b.buf, b.r, b.w = b.buf, nil, 0, 0
	b.err = io.EOF
	b.x.end(whole)
}

// fail gives the connection up.
func (b *responseBody) fail(err error) {
	b.err = err
	b.x.end(false)
	b.held, b.buf, b.r, b.w = b.buf, nil, 0, 0
}

func (b *responseBody) letGo() {
	putBuffer(b.held)
	b.held = nil
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pend) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		piece, err := b.next()
		b.pend = piece
		if len(piece) == 0 {
			return 0, err
		}
	}
	n := copy(p, b.pend)
	b.pend = b.pend[n:]
	if len(b.pend) == 0 {
		b.pend = nil
		return n, b.err
	}
	return n, nil
}

// Close implements io.Closer. A body that was not read to its end takes its connection with it.
func (b *responseBody) Close() error {
	b.x.cut()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.fail(http.ErrBodyReadAfterClose)
	}
	b.pend = nil
	b.letGo()
	b.err = http.ErrBodyReadAfterClose
	return nil
}
