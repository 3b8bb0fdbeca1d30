// Package http1 is a fast path for keep-alive HTTP/1.1 with Content-Length or chunked bodies. Transport is an
// http.RoundTripper and Server serves an http.Handler, so users of net/http need no changes. Each uses one
// goroutine per request and gives its buffers back while a stream is silent. On Linux, DetachStream moves the
// rest of a response to an epoll loop that needs no goroutine per stream, and a Server with a LoopConfig serves
// whole requests on such a loop (DESIGN.md). SingleSendTransport sends each request at most once over net/http.
//
// The parsers accept one plain syntax only and never guess. Anything unusual or rare (HTTP/2, upgrades, chunked
// request bodies, Expect) is handed to net/http with all bytes read so far. Therefore net/http alone decides
// which malformed messages are refused, and how.
package http1
