package local

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

// namedTransport sends the worker's name as Host, for workers behind a server of several names, and adds the credentials that
// the worker requires. Every call to a worker passes through it.
type namedTransport struct {
	serverNames *serverNames
	open        func() http.RoundTripper
	current     atomic.Pointer[http.RoundTripper]

	mu      sync.Mutex
	retired http.RoundTripper // the one before current: it makes no more calls; nil: none
}

// newNamedTransport returns a transport that makes its calls with what open returns.
func newNamedTransport(names *serverNames, open func() http.RoundTripper) *namedTransport {
	t := &namedTransport{serverNames: names, open: open}
	first := open()
	t.current.Store(&first)
	return t
}

// RetireConnections has every later call made over a new connection. It closes the idle ones; those in use end their call and
// are then idle, until the next call of CloseRetired or their idle timeout.
func (t *namedTransport) RetireConnections() {
	next := t.open()
	t.mu.Lock()
	defer t.mu.Unlock()
	closeIdle(t.retired)
	t.retired = *t.current.Swap(&next)
	closeIdle(t.retired)
}

// CloseRetired closes the retired connections that have become idle.
func (t *namedTransport) CloseRetired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	closeIdle(t.retired)
}

// CloseIdleConnections closes the idle connections, the retired ones included.
func (t *namedTransport) CloseIdleConnections() {
	t.CloseRetired()
	closeIdle(*t.current.Load())
}

func closeIdle(t http.RoundTripper) {
	if t, ok := t.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// RoundTrip follows no redirects, as any transport.
func (t *namedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.roundTripBy(r, func(rt http.RoundTripper, r *http.Request) (*http.Response, error) { return rt.RoundTrip(r) })
}

// RoundTripSent implements http1.SentRoundTripper.
func (t *namedTransport) RoundTripSent(r *http.Request, s *http1.SentRequest) (*http.Response, error) {
	return t.roundTripBy(r, func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return rt.(http1.SentRoundTripper).RoundTripSent(r, s) // a request loop runs only with http1.Transport
	})
}

// roundTripBy makes a call with the name and the credentials of its worker.
func (t *namedTransport) roundTripBy(r *http.Request, do func(http.RoundTripper, *http.Request) (*http.Response, error)) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		if name := t.serverNames.nameFor(tlsHostPort(r.URL)); name != "" {
			r = r.WithContext(r.Context()) // a copy: the caller's request stays unchanged
			r.Host = name
			if p := r.URL.Port(); p != "" && p != "443" {
				r.Host = net.JoinHostPort(name, p)
			}
		}
	}
	r, err := t.serverNames.credentials.addCredentials(r)
	if err != nil {
		return nil, err
	}
	return do(*t.current.Load(), r)
}

// workerTransports are all transports of an instance to workers.
type workerTransports []*namedTransport

func (l workerTransports) closeIdle() {
	for _, t := range l {
		t.CloseIdleConnections()
	}
}

func (l workerTransports) closeRetired() {
	for _, t := range l {
		t.CloseRetired()
	}
}

// retireConnections has every later call to a worker made over a new connection.
func (l workerTransports) retireConnections() {
	for _, t := range l {
		t.RetireConnections()
	}
}
