package http1

import (
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// ProgressObserver observes a request until its final response. The methods may be called on any goroutine, and
// more than once.
type ProgressObserver interface {
	// WroteRequest reports that the whole request is written, including its body.
	WroteRequest()
	// GotInterim reports a 1xx response by its header, which must not be changed.
	GotInterim(h http.Header)
}

// RoundTripObserved is rt.RoundTrip with p observing the request.
func RoundTripObserved(rt http.RoundTripper, req *http.Request, p ProgressObserver) (*http.Response, error) {
	if t, ok := rt.(*Transport); ok {
		return t.roundTrip(req, p)
	}
	return rt.RoundTrip(withClientTrace(req, p))
}

// withClientTrace has net/http report the progress of a request.
func withClientTrace(req *http.Request, p ProgressObserver) *http.Request {
	if p == nil {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				p.WroteRequest()
			}
		},
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			p.GotInterim(http.Header(h))
			return nil
		},
	}))
}

// reportSent reports that the whole request is written.
func reportSent(p ProgressObserver) {
	if p != nil {
		p.WroteRequest()
	}
}

// reportInterim reports a 1xx response.
func reportInterim(p ProgressObserver, h http.Header) {
	if p != nil {
		p.GotInterim(h)
	}
}
