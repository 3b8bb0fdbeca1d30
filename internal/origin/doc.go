// Package origin says where a request comes from when proxies stand before a door: by the PROXY protocol (versions 1 and
// 2, as HAProxy's proxy-protocol.txt has it), by X-Forwarded-For or by Forwarded (RFC 7239).
//
// Only proxies that an operator lists are believed, and of a chain of them the first address from the right that is none
// of theirs is the client. What it cannot read it does not believe; it never guesses.
package origin
