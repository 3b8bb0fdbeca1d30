package relay

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

// Outbound builds the request that goes on to url: the caller's method and end-to-end headers without its credentials
// and without Spillway-* headers, the body with its known length, and the hop's headers. Compression is not asked for,
// so that events pass as they are made.
func Outbound(ctx context.Context, in *http.Request, url string, body []byte, hop *Hop) (*http.Request, error) {
	out, err := http.NewRequestWithContext(ctx, in.Method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("building the request to the next tier: %w", err)
	}
	pass(out.Header, in.Header, func(name string) bool {
		return secret(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // the transport would add its own
	}
	out.Header.Set("Accept-Encoding", "identity")
	if hop != nil {
		hop.Set(out.Header)
	}
	return out, nil
}
