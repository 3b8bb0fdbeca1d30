package http1

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
)

// errMalformedChunk means that a chunked body has invalid framing.
var errMalformedChunk = errors.New("malformed chunked encoding")

const (
	untilClosed = -1
)

// maxTrailerBytes bounds the lines after the last chunk, in bytes.
const maxTrailerBytes = 8 << 10

type chunkState uint8

const (
	atChunkSize chunkState = iota
	inChunkData
	afterChunkData
	inTrailer
)

// bodyDecoder decodes the body of a message from a connection.
type bodyDecoder struct {
	*readBufConn
	remaining int64 // bytes left of the body or of a chunk; untilClosed
	chunked   bool
	state     chunkState
	trailer   []byte
}

// decodeBuffered decodes what is in the buffer. It returns a piece of the body, valid until the next read, and
// io.EOF with the last piece. An empty piece without an error means that more bytes must be read.
func (f *bodyDecoder) decodeBuffered() ([]byte, error) {
	b := f.bufferedBytes()
	switch {
	case f.chunked:
		return f.decodeChunks()
	case f.remaining == untilClosed:
		f.r = f.w
		return b, nil
	}
	n := int(min(int64(len(b)), f.remaining))
	f.r += n
	if f.remaining -= int64(n); f.remaining == 0 {
		return b[:n], io.EOF
	}
	return b[:n], nil
}

// decodeChunks joins the pieces of all chunks in the buffer, so that they are forwarded in one write.
func (f *bodyDecoder) decodeChunks() ([]byte, error) {
	var buf []byte
	if f.buf != nil {
		buf = *f.buf
	}
	from, to := f.r, f.r
	for f.r < f.w {
		switch f.state {
		case inChunkData:
			n := int(min(int64(f.w-f.r), f.remaining))
			if from == to {
				from, to = f.r, f.r
			}
			copy(buf[to:], buf[f.r:f.r+n])
			to += n
			f.r += n
			if f.remaining -= int64(n); f.remaining == 0 {
				f.state = afterChunkData
			}
			continue
		case afterChunkData:
			if f.w-f.r < 2 {
				return buf[from:to], nil
			}
			if buf[f.r] != '\r' || buf[f.r+1] != '\n' {
				return buf[from:to], errMalformedChunk
			}
			f.r += 2
			f.state = atChunkSize
			continue
		}
		line, ok := firstLine(buf[f.r:f.w])
		if !ok {
			if f.w-f.r > maxTrailerBytes {
				return buf[from:to], errMalformedChunk
			}
			return buf[from:to], nil
		}
		f.r += len(line) + 2
		if f.state == inTrailer {
			if len(line) == 0 {
				if _, ok := parseHeaderLines(string(f.trailer)); !ok {
					return buf[from:to], errMalformedChunk
				}
				return buf[from:to], io.EOF
			}
			if f.trailer = append(append(f.trailer, line...), "\r\n"...); len(f.trailer) > maxTrailerBytes {
				return buf[from:to], errMalformedChunk
			}
			continue
		}
		size, ok := parseChunkSize(line)
		if !ok {
			return buf[from:to], errMalformedChunk
		}
		f.remaining, f.state = size, inChunkData
		if size == 0 {
			f.state = inTrailer
		}
	}
	return buf[from:to], nil
}

// firstLine returns the first line without its CRLF. A lone LF or CR does not end a line: the parser of the
// line refuses it.
func firstLine(b []byte) ([]byte, bool) {
	for i := 1; i < len(b); i++ {
		if b[i] == '\n' && b[i-1] == '\r' {
			return b[:i-1], true
		}
	}
	return nil, false
}

// parseChunkSize parses the first line of a chunk: hexadecimal digits and optional extensions, which are
// ignored.
func parseChunkSize(line []byte) (n int64, ok bool) {
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
			return n, i > 0 && isChunkExtension(line[i:])
		}
		if i >= 15 {
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, i > 0
}

// isChunkExtension checks the text after a chunk size. Valid are white space alone (some senders pad the size)
// and an extension that follows the size directly.
func isChunkExtension(b []byte) bool {
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

// responseBody is the body of a response. Besides Read it has NextChunk, which copies no bytes and holds no
// buffer while it waits.
type responseBody struct {
	bodyDecoder
	exchange *exchange

	mu         sync.Mutex
	pending    []byte
	heldBuffer *[]byte // the buffer of the last piece, after the connection was given back
	err        error   // the result of all further calls
}

// NextChunk returns the next piece, which is valid until the next call of any method, and io.EOF with the last
// piece.
func (b *responseBody) NextChunk() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		p := b.pending
		b.pending = nil
		return p, nil
	}
	return b.nextChunk()
}

func (b *responseBody) nextChunk() ([]byte, error) {
	for b.err == nil {
		p, err := b.decodeBuffered()
		switch {
		case err == io.EOF:
			b.completeBody()
		case err != nil:
			b.failBody(err)
		case len(p) == 0:
			switch err := b.fillBuffer(); err {
			case nil:
			case errWouldBlock:
				return nil, err
			default:
				b.handleReadError(err)
			}
			continue
		}
		return p, b.err
	}
	b.releaseBuffer()
	return nil, b.err
}

// handleReadError ends the body after a read error.
func (b *responseBody) handleReadError(err error) {
	if err == io.EOF && !b.chunked && b.remaining == untilClosed {
		b.failBody(io.EOF)
		return
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	b.failBody(b.exchange.preferContextCause(err))
}

// completeBody gives the connection back. It keeps the buffer, which holds the last piece.
func (b *responseBody) completeBody() {
	if len(b.trailer) > 0 {
		if h, ok := parseHeaderLines(string(b.trailer)); ok {
			if b.exchange.resp.Trailer == nil {
				b.exchange.resp.Trailer = h
			}
			maps.Copy(b.exchange.resp.Trailer, h)
		}
	}
	whole := b.r == b.w
	b.heldBuffer, b.buf, b.r, b.w = b.buf, nil, 0, 0
	b.err = io.EOF
	b.exchange.finishExchange(whole)
}

// failBody closes the connection.
func (b *responseBody) failBody(err error) {
	b.err = err
	b.exchange.finishExchange(false)
	b.heldBuffer, b.buf, b.r, b.w = b.buf, nil, 0, 0
}

func (b *responseBody) releaseBuffer() {
	putBuffer(b.heldBuffer)
	b.heldBuffer = nil
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		piece, err := b.nextChunk()
		b.pending = piece
		if len(piece) == 0 {
			return 0, err
		}
	}
	n := copy(p, b.pending)
	b.pending = b.pending[n:]
	if len(b.pending) == 0 {
		b.pending = nil
		return n, b.err
	}
	return n, nil
}

// Close implements io.Closer. It closes the connection if the body was not read to its end.
func (b *responseBody) Close() error {
	b.exchange.abortExchange()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.failBody(http.ErrBodyReadAfterClose)
	}
	b.pending = nil
	b.releaseBuffer()
	b.err = http.ErrBodyReadAfterClose
	return nil
}
