// Package clientip determines the address of a client behind proxies: by the PROXY protocol (versions 1 and 2,
// HAProxy's proxy-protocol.txt), by X-Forwarded-For or by Forwarded (RFC 7239). ProxyListener handles the PROXY
// protocol, TrustedProxies the headers.
//
// Only proxies listed by the operator are trusted. In a chain of proxies the client is the first address from
// the right that is not a trusted proxy. Malformed entries are never trusted and never guessed.
//
// The PROXY parser is the package's own, because no module of this one's graph contains one; it works on the bytes
// read so far, and is fuzzed.
package clientip
