// Package h3 is a door for clients over HTTP/3 (RFC 9114), beside the one over TCP on the same port. It bounds
// connections, requests on each, heads, silence and haste, and ends in order. Early data (0-RTT) is never taken: what may
// come twice may not be paid twice.
//
// It judges no request: that is its handler's business.
package h3
