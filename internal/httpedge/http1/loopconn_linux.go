package http1

import (
	"net"
	"time"
)

// loopConn is a loopClient as a net.Conn for the ConnState hook of the server, which may close it.
type loopConn struct{ client *loopClient }

// Close closes the connection if it is idle. It may be called on any goroutine.
func (c *loopConn) Close() error {
	of := c.client
	of.loop.postCall(func() {
		if of.state == clientIdle || of.state == clientReading {
			of.closeClient()
		}
	})
	return nil
}

// Read implements net.Conn.
func (c *loopConn) Read([]byte) (int, error) { return 0, net.ErrClosed }

// Write implements net.Conn.
func (c *loopConn) Write([]byte) (int, error) { return 0, net.ErrClosed }

// LocalAddr implements net.Conn.
func (c *loopConn) LocalAddr() net.Addr { return nil }

// RemoteAddr implements net.Conn.
func (c *loopConn) RemoteAddr() net.Addr { return nil }

// SetDeadline implements net.Conn.
func (c *loopConn) SetDeadline(time.Time) error { return net.ErrClosed }

// SetReadDeadline implements net.Conn.
func (c *loopConn) SetReadDeadline(time.Time) error { return net.ErrClosed }

// SetWriteDeadline implements net.Conn.
func (c *loopConn) SetWriteDeadline(time.Time) error { return net.ErrClosed }
