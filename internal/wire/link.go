package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// link is a connection with what was read of it and not yet used.
type link struct {
	conn net.Conn
	tls  *tls.Conn       // the same, where it is one
	raw  syscall.RawConn // of a connection whose bytes are what conn reads; nil under TLS
	buf  *[]byte         // nil while nothing is there
	r, w int
	full bool // the last read has filled the buffer, so that more may be there
	lent bool // a loop has the descriptor: reads wait for nothing

	try func(fd uintptr) bool // attempt, made once
	n   int
	err error
}

func newLink(c net.Conn) *link {
	l := &link{conn: c}
	l.tls, _ = c.(*tls.Conn)
	if _, layered := c.(interface{ NetConn() net.Conn }); !layered {
		l.raw = rawOf(c)
		l.try = l.attempt
	}
	return l
}

func (l *link) buffered() []byte {
	if l.buf == nil {
		return nil
	}
	return (*l.buf)[l.r:l.w]
}

// drop gives the buffer back when everything in it was used.
func (l *link) drop() {
	if l.r == l.w {
		putBuffer(l.buf)
		l.buf, l.r, l.w = nil, 0, 0
	}
}

// errFull means that more does not fit into the buffer.
var errFull = errors.New("a line or head is longer than the buffer")

// fill waits for more bytes and reads them. Where it can, it holds no buffer while it waits.
func (l *link) fill() error {
	if l.r == l.w {
		l.r, l.w = 0, 0
		l.drop()
		if l.raw != nil && !l.lent {
			return l.await()
		}
	}
	if l.buf == nil {
		l.buf = getBuffer(!l.full && !l.lent)
	}
	if l.w == len(*l.buf) {
		switch {
		case l.r > 0:
			l.w = copy(*l.buf, (*l.buf)[l.r:l.w])
			l.r = 0
		case len(*l.buf) < bufferBytes:
			more := getBuffer(false)
			copy(*more, *l.buf)
			putBuffer(l.buf)
			l.buf = more
		default:
			return errFull
		}
	}
	n, err := l.conn.Read((*l.buf)[l.w:])
	l.w += n
	l.full = l.w == len(*l.buf)
	if n > 0 {
		return nil
	}
	if err == errWait {
		l.shrink()
		return err
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// await reads into a buffer that it takes once bytes are there.
func (l *link) await() error {
	l.n, l.err = 0, nil
	if err := l.raw.Read(l.try); err != nil {
		l.drop()
		return err
	}
	l.w = max(l.n, 0)
	switch {
	case l.n > 0:
		return nil
	case l.err != nil:
		l.drop()
		return &net.OpError{Op: "read", Net: "tcp", Source: l.conn.LocalAddr(), Addr: l.conn.RemoteAddr(), Err: l.err}
	}
	l.drop()
	return io.EOF
}

// shrink holds no more than it must while nothing comes.
func (l *link) shrink() {
	lean(l.tls, leanBytes)
	if l.drop(); l.buf == nil || len(*l.buf) == heldBytes || l.w-l.r > heldBytes {
		return
	}
	less := getBuffer(true)
	l.r, l.w = 0, copy(*less, l.buffered())
	putBuffer(l.buf)
	l.buf = less
}
