package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// hopHeaders is how many headers a hop adds at most, about.
const hopHeaders = 8

var identity = []string{"identity"} // nobody changes it in place

// Outbound builds the request that goes on to url: the caller's method and end-to-end headers without its credentials
// and without Spillway-* headers, the body with its known length, and the hop's headers. Compression is not asked for,
// so that events pass as they are made.
func Outbound(ctx context.Context, in *http.Request, url string, body []byte, hop *Hop) (*http.Request, error) {
	headers := 1
	for name := range in.Header {
		if !internal(name) {
			headers++
		}
	}
	if hop != nil {
		headers += hopHeaders
	}
	out, err := request(ctx, in.Method, url, body, headers)
	if err != nil {
		return nil, fmt.Errorf("building the request to the next tier: %w", err)
	}
	pass(out.Header, in.Header, func(name string) bool {
		return secret(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // the transport would add its own
	}
	out.Header["Accept-Encoding"] = identity
	if hop != nil {
		hop.Set(out.Header)
	}
	return out, nil
}

// OutboundAs is Outbound for a body of which a part may be written anew.
func OutboundAs(ctx context.Context, in *http.Request, url string, body openai.Wording, hop *Hop) (*http.Request, error) {
	if !body.Edited() {
		return Outbound(ctx, in, url, body.Bytes(), hop)
	}
	out, err := Outbound(ctx, in, url, nil, hop)
	if err == nil {
		carry(out, &body)
	}
	return out, err
}

// Through builds a request that passes on whole to url, whose host it names: the caller's method and end-to-end headers,
// without its credentials, without Spillway-* headers and without what it says of where it comes from, and the body as it
// comes. length is -1 when it is not known; a nil body is none. The body is not closed.
func Through(ctx context.Context, in *http.Request, url string, body io.Reader, length int64) (*http.Request, error) {
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
	pass(out.Header, in.Header, func(name string) bool {
		return secret(name) || claimed(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect" || name == "Prefer"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // the transport would add its own
	}
	out.Header.Set("Accept-Encoding", "identity")
	return out, nil
}

// claimed reports whether a header says where a request comes from: nobody outside is believed.
func claimed(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}
