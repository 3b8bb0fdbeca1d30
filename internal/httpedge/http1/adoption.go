package http1

import (
	"net/http"
	"time"
)

// adoptedRequest is a request that leaves a request loop.
type adoptedRequest struct {
	fd         int
	head, next []byte // of the request, and what followed it
	exchange   LoopExchange
	at         HandOver
	unsent     []byte // of the answer
	chunked    bool   // the answer is sent in chunks
	closeAfter bool
	clientGone bool
}

// maxDeclines is how many requests in a row of one connection may leave a loop unread before the connection stays with its
// goroutine: each costs about 30 us more than a request there.
const maxDeclines = 4

// beginAdoption announces a connection that comes from a loop.
func (s *Server) beginAdoption() {
	s.mu.Lock()
	s.adopting++
	s.mu.Unlock()
}

// newAdoptedConn makes a connection of this package of a descriptor.
func (s *Server) newAdoptedConn(fd int, read []byte, declines int, l *requestLoop) *serverConn {
	accepted, err := fileConn(fd)
	tcp := bottomTCPConn(accepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopting--
	if err != nil || tcp == nil || s.watcher == nil {
		return nil
	}
	c := s.newConn(accepted, tcp, nil, l.base())
	c.preloadBytes(read)
	c.homeLoop, c.declines = l, declines
	s.conns[c] = struct{}{}
	if s.closed {
		_ = accepted.Close() // its handler fails
		c.clientGone = true
	}
	return c
}

// adoptConn serves a connection whose first bytes are read.
func (s *Server) adoptConn(fd int, read []byte, declines int, l *requestLoop) {
	if c := s.newAdoptedConn(fd, read, declines, l); c != nil {
		c.reportState(http.StateNew)
		c.serveConn()
	}
}

// adoptRequest continues a request, and then serves its connection.
func (s *Server) adoptRequest(a *adoptedRequest, l *requestLoop) {
	growStack(0)
	c := s.newAdoptedConn(a.fd, a.next, 0, l)
	if c == nil {
		return
	}
	last := http.StateClosed
	defer func() { c.releaseConn(last) }()
	c.reportState(http.StateNew)
	c.reportState(http.StateActive)
	c.state.Store(connActive)
	c.remoteAddr = describeRemoteAddr(c.accepted)
	if err := s.watcher.addConn(c); err != nil {
		a.clientGone = true
	}
	if a.clientGone {
		c.handleClientGone()
	}
	last = c.afterAnswer(c.continueRequest(a))
}

// continueRequest runs the rest of a request.
func (c *serverConn) continueRequest(a *adoptedRequest) connAction {
	p := parseRequestHead(string(a.head))
	if p == nil {
		return actionClose // not reached: the loop accepts less
	}
	w := &responseWriter{conn: c, header: http.Header{}, closeAfter: a.closeAfter || c.server.stopping.Load()}
	c.beginRequest(&w.ctx)
	req := p.toHTTPRequest(&w.ctx)
	req.RemoteAddr = c.remoteAddr
	w.reqBody.setLength(c, 0) // it was read
	if a.at.Begun {
		w.wroteHeader, w.headBuilt, w.status, w.chunked, w.contentLength = true, true, http.StatusOK, a.chunked, -1
		if len(a.unsent) > 0 {
			w.ensureOutput()
			w.out.b = append(w.out.b, a.unsent...)
		}
	}
	return c.runAndFinish(w, func() { a.exchange.Continue(w, req, a.at) })
}

// AnnounceTrailer lets a handler that continues an answer write a trailer which the head has announced.
func AnnounceTrailer(w http.ResponseWriter, name string) {
	for {
		switch t := w.(type) {
		case *responseWriter:
			t.trailerNames = append(t.trailerNames, name)
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return
		}
	}
}

// returnToLoop gives a connection back to the loop that it came from, between two requests.
func (c *serverConn) returnToLoop() bool {
	l := c.homeLoop
	if l == nil || c.declines >= maxDeclines || len(c.bufferedBytes()) > 0 || c.server.stopping.Load() {
		return false
	}
	fd := -1
	raw, err := c.tcpConn.SyscallConn()
	if err != nil || raw.Control(func(from uintptr) { fd = dupDescriptor(from) }) != nil || fd < 0 {
		return false
	}
	_ = c.accepted.SetDeadline(time.Time{}) // it belongs to the poller of the runtime
	c.server.watcher.removeConn(c)
	if !l.returnConn(fd, c.declines) {
		closeDescriptor(fd)
	}
	return true
}
