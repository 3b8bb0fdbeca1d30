package http1

import (
	"net"
	"syscall"
)

// clientWriter writes to a client. In eager mode it does not block: bytes that the kernel does not accept at
// once are buffered for flushUnsent.
type clientWriter struct {
	net.Conn
	rawConn     syscall.RawConn
	nonBlocking bool
	unsent      []byte

	tryWrite func(fd uintptr) // writeNow, bound once
	p        []byte
	n        int
	err      error
}

func newClientWriter(c net.Conn, tcp *net.TCPConn) *clientWriter {
	o := &clientWriter{Conn: c, rawConn: rawConnOf(tcp)}
	o.tryWrite = o.writeNow
	return o
}

// NetConn returns the underlying connection.
func (o *clientWriter) NetConn() net.Conn { return o.Conn }

// Write implements net.Conn.
func (o *clientWriter) Write(p []byte) (int, error) {
	if !o.nonBlocking {
		return o.Conn.Write(p)
	}
	if len(o.unsent) > 0 {
		o.unsent = append(o.unsent, p...)
		return len(p), nil
	}
	o.p, o.n, o.err = p, 0, nil
	err := o.rawConn.Control(o.tryWrite) // Control only holds the descriptor open
	o.p = nil
	switch {
	case err != nil:
		return 0, err
	case o.err != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Source: o.LocalAddr(), Addr: o.RemoteAddr(), Err: o.err}
	}
	if o.n < len(p) {
		o.unsent = append(o.unsent, p[o.n:]...)
	}
	return len(p), nil
}

// flushUnsent writes the buffered bytes within the write timeout.
func (o *clientWriter) flushUnsent() error {
	rest := o.unsent
	o.unsent = nil
	_, err := o.Conn.Write(rest)
	return err
}
