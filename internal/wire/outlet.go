package wire

import (
	"net"
	"syscall"
)

// outlet writes to a client. While it is eager it waits for nobody: what the kernel does not take at once is kept, for
// drain.
type outlet struct {
	net.Conn
	raw   syscall.RawConn
	eager bool
	rest  []byte

	try func(fd uintptr) // attempt, made once
	p   []byte
	n   int
	err error
}

func newOutlet(c net.Conn, tcp *net.TCPConn) *outlet {
	o := &outlet{Conn: c, raw: rawOf(tcp)}
	o.try = o.attempt
	return o
}

// NetConn is the connection below.
func (o *outlet) NetConn() net.Conn { return o.Conn }

// Write implements net.Conn.
func (o *outlet) Write(p []byte) (int, error) {
	if !o.eager {
		return o.Conn.Write(p)
	}
	if len(o.rest) > 0 {
		o.rest = append(o.rest, p...)
		return len(p), nil
	}
	o.p, o.n, o.err = p, 0, nil
	err := o.raw.Control(o.try) // which holds the descriptor open, and no more
	o.p = nil
	switch {
	case err != nil:
		return 0, err
	case o.err != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Source: o.LocalAddr(), Addr: o.RemoteAddr(), Err: o.err}
	}
	if o.n < len(p) {
		o.rest = append(o.rest, p[o.n:]...)
	}
	return len(p), nil
}

// drain writes what was kept, in the time that writes may take.
func (o *outlet) drain() error {
	rest := o.rest
	o.rest = nil
	_, err := o.Conn.Write(rest)
	return err
}
