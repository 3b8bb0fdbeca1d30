package http1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
)

var (
	// ErrAborted means that LoopRef.Abort has ended an attempt.
	ErrAborted = errors.New("http1: the attempt was given up")
	// ErrSilent means that an upstream has sent nothing for LoopConfig.AnswerTimeout.
	ErrSilent = errors.New("http1: the upstream was silent for too long")

	errClientGone      = errors.New("http1: the client has left")
	errBrokenByHandler = errors.New("http1: the handler has ended the answer")
)

// SentRequest is a request that a request loop has sent, or could not send, and whose answer a goroutine reads.
type SentRequest struct {
	fd      int
	hasConn bool   // otherwise err is why there is no connection
	read    []byte // of the answer
	unsent  []byte // of the request
	reused  bool   // the connection has carried a request before
	err     error  // of the last read or write
}

// Cause returns ErrAborted or ErrSilent if that ended the attempt, else nil.
func (s *SentRequest) Cause() error {
	if s != nil && (s.err == ErrAborted || s.err == ErrSilent) {
		return s.err
	}
	return nil
}

// SentRoundTripper is a RoundTripper that can read the answer to a request which a request loop has sent.
type SentRoundTripper interface {
	RoundTripSent(req *http.Request, s *SentRequest) (*http.Response, error)
}

// fileConn makes a connection of package net of a descriptor, which it closes.
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "tcp")
	defer func() { _ = f.Close() }() // the connection has a duplicate
	return net.FileConn(f)
}

// failedConn is a connection whose last read or write has failed with err.
type failedConn struct {
	net.Conn
	err error
}

// Read implements net.Conn.
func (c *failedConn) Read([]byte) (int, error) {
	if c.err == io.EOF {
		return 0, io.EOF
	}
	return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.err}
}

// NetConn returns the underlying connection.
func (c *failedConn) NetConn() net.Conn { return c.Conn }
