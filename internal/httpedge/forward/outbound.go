package forward

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// maxHopHeaders is the approximate number of headers that a hop adds.
const maxHopHeaders = 8

var identityEncoding = []string{"identity"} // never modified in place

// NewHopRequest builds the request to url: the client's method and end-to-end headers without its credentials
// and without Spillway-* headers, the body with its known length, and the headers of the hop. It does not
// request compression, so that events pass as they are produced.
func NewHopRequest(ctx context.Context, in *http.Request, url string, body []byte, hop *Hop) (*http.Request, error) {
	headers := 1
	for name := range in.Header {
		if !isTierHeader(name) {
			headers++
		}
	}
	if hop != nil {
		headers += maxHopHeaders
	}
	out, err := newRequest(ctx, in.Method, url, body, headers)
	if err != nil {
		return nil, fmt.Errorf("building the request to the next tier: %w", err)
	}
	copyHeaders(out.Header, in.Header, func(name string) bool {
		return isCredential(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // otherwise the transport adds its own
	}
	out.Header["Accept-Encoding"] = identityEncoding
	if hop != nil {
		hop.SetHeaders(out.Header)
	}
	return out, nil
}

// NewEditedHopRequest is NewHopRequest for a body that may have edits.
func NewEditedHopRequest(ctx context.Context, in *http.Request, url string, body openai.EditedBody, hop *Hop) (*http.Request, error) {
	if !body.IsEdited() {
		return NewHopRequest(ctx, in, url, body.Bytes(), hop)
	}
	out, err := NewHopRequest(ctx, in, url, nil, hop)
	if err == nil {
		setRequestBody(out, &body)
	}
	return out, err
}

// NewPassthroughRequest builds a request to url, whose host it uses: the client's method and end-to-end
// headers, without its credentials, Spillway-* headers and forwarding headers, and the body as a stream. length
// is -1 if unknown; a nil body is no body. The body is not closed.
func NewPassthroughRequest(ctx context.Context, in *http.Request, url string, body io.Reader, length int64) (*http.Request, error) {
	var open io.Reader
	if body != nil {
		open = io.NopCloser(body)
	}
	out, err := http.NewRequestWithContext(ctx, in.Method, url, open)
	if err != nil {
		return nil, fmt.Errorf("building the request to a region: %w", err)
	}
	if body != nil {
		out.ContentLength = length
	}
	copyHeaders(out.Header, in.Header, func(name string) bool {
		return isCredential(name) || isOriginClaim(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect" || name == "Prefer"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // otherwise the transport adds its own
	}
	out.Header.Set("Accept-Encoding", "identity")
	return out, nil
}

// isOriginClaim reports whether a header names the origin of a request. Such headers from outside are not
// trusted.
func isOriginClaim(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}
