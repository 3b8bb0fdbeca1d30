// Package forward forwards one HTTP request to one endpoint and streams its response back, for the regional and
// the local tier. Forwarder forwards buffered requests, streaming calls (gRPC) and WebSocket tunnels; ReadBody
// and ReadEnvelope read the request; Connector hedges dials; Hop holds the Spillway-* headers between tiers.
//
// It decides when a response has begun: the head of a success is held until the first byte of its body, so that
// a failure before it can be retried elsewhere. It never retries, never chooses an endpoint, and never reads a
// prompt.
package forward
