package wire

import (
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// Progress observes a request until its final answer. The methods may be called on any goroutine, and more than once.
type Progress interface {
	// Sent reports that the whole request is written, its body included.
	Sent()
	// Interim reports an answer 1xx by its header, which must not be changed.
	Interim(h http.Header)
}

// RoundTrip is rt.RoundTrip with p observing the request.
func RoundTrip(rt http.RoundTripper, req *http.Request, p Progress) (*http.Response, error) {
	if t, ok := rt.(*Transport); ok {
		return t.roundTrip(req, p)
	}
	return rt.RoundTrip(traced(req, p))
}

// traced has net/http report the progress of a request.
func traced(req *http.Request, p Progress) *http.Request {
	if p == nil {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				p.Sent()
			}
		},
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			p.Interim(http.Header(h))
			return nil
		},
	}))
}

// reportSent reports that the whole request is written.
func reportSent(p Progress) {
	if p != nil {
		p.Sent()
	}
}

// reportInterim reports an answer 1xx.
func reportInterim(p Progress, h http.Header) {
	if p != nil {
		p.Interim(h)
	}
}
