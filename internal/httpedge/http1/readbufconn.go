package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// readBufConn is a connection with a buffer of unconsumed bytes.
type readBufConn struct {
	conn         net.Conn
	tls          *tls.Conn       // conn as *tls.Conn, under TLS
	rawConn      syscall.RawConn // of a connection whose bytes are those of conn; nil under TLS
	buf          *[]byte         // nil while empty
	r, w         int
	lastReadFull bool // the last read filled the buffer, so more may be available
	lentToLoop   bool // a loop has the descriptor: reads do not block

	tryRead func(fd uintptr) bool // readNow, bound once
	n       int
	err     error
}

func newReadBufConn(c net.Conn) *readBufConn {
	l := &readBufConn{conn: c}
	l.tls, _ = c.(*tls.Conn)
	if _, layered := c.(interface{ NetConn() net.Conn }); !layered {
		l.rawConn = rawConnOf(c)
		l.tryRead = l.readNow
	}
	return l
}

func (l *readBufConn) bufferedBytes() []byte {
	if l.buf == nil {
		return nil
	}
	return (*l.buf)[l.r:l.w]
}

// releaseIfEmpty releases the buffer when all of it was consumed.
func (l *readBufConn) releaseIfEmpty() {
	if l.r == l.w {
		putBuffer(l.buf)
		l.buf, l.r, l.w = nil, 0, 0
	}
}

// errBufferFull means that a line or head does not fit into the buffer.
var errBufferFull = errors.New("a line or head is longer than the buffer")

// fillBuffer waits for more bytes and reads them. If possible, it holds no buffer while it waits.
func (l *readBufConn) fillBuffer() error {
	if l.r == l.w {
		l.r, l.w = 0, 0
		l.releaseIfEmpty()
		if l.rawConn != nil && !l.lentToLoop {
			return l.readWhenReady()
		}
	}
	if l.buf == nil {
		l.buf = getBuffer(!l.lastReadFull && !l.lentToLoop)
	}
	if l.w == len(*l.buf) {
		switch {
		case l.r > 0:
			l.w = copy(*l.buf, (*l.buf)[l.r:l.w])
			l.r = 0
		case len(*l.buf) < readBufferBytes:
			more := getBuffer(false)
			copy(*more, *l.buf)
			putBuffer(l.buf)
			l.buf = more
		default:
			return errBufferFull
		}
	}
	n, err := l.conn.Read((*l.buf)[l.w:])
	l.w += n
	l.lastReadFull = l.w == len(*l.buf)
	if n > 0 {
		return nil
	}
	if err == errWouldBlock {
		l.shrinkBuffers()
		return err
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// readWhenReady reads into a buffer that it allocates only once bytes are available.
func (l *readBufConn) readWhenReady() error {
	l.n, l.err = 0, nil
	if err := l.rawConn.Read(l.tryRead); err != nil {
		l.releaseIfEmpty()
		return err
	}
	l.w = max(l.n, 0)
	switch {
	case l.n > 0:
		return nil
	case l.err != nil:
		l.releaseIfEmpty()
		return &net.OpError{Op: "read", Net: "tcp", Source: l.conn.LocalAddr(), Addr: l.conn.RemoteAddr(), Err: l.err}
	}
	l.releaseIfEmpty()
	return io.EOF
}

// shrinkBuffers keeps only the memory needed while no bytes arrive.
func (l *readBufConn) shrinkBuffers() {
	shrinkTLSBuffers(l.tls, maxIdleTLSBuffer)
	if l.releaseIfEmpty(); l.buf == nil || len(*l.buf) == smallBufferBytes || l.w-l.r > smallBufferBytes {
		return
	}
	less := getBuffer(true)
	l.r, l.w = 0, copy(*less, l.bufferedBytes())
	putBuffer(l.buf)
	l.buf = less
}

// preloadBytes puts bytes that were read before into the buffer.
func (l *readBufConn) preloadBytes(b []byte) {
	if len(b) == 0 {
		return
	}
	if len(b) > readBufferBytes {
		own := append([]byte(nil), b...)
		l.buf, l.r, l.w = &own, 0, len(own)
		return
	}
	l.buf = getBuffer(false)
	l.r, l.w = 0, copy(*l.buf, b)
}
