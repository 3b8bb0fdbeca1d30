// Package wire is a short way for the hot shape of traffic: HTTP/1.1 with a known length or chunks, on connections that
// are kept. It stands behind net/http's own interfaces, so that nobody who uses it writes anything differently: Transport
// is an http.RoundTripper and Server serves an http.Handler, each with one goroutine for a request and buffers that are
// given back while a stream is silent.
//
// It knows one way of writing everything and never guesses: what is written in any other way, and all that is rare (HTTP/2,
// upgrades, chunked request bodies, Expect), goes to net/http with every byte that was read so far. So what is refused, and
// how, is decided there.
package wire
