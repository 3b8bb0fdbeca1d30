// Package dns answers authoritatively for one zone, over UDP and TCP, from an immutable View that its owner swaps.
//
// It decides everything that belongs to the protocol: which messages are dropped, refused or malformed, what EDNS and
// Client Subnet (RFC 7871) options mean, which names exist, how large an answer may be, and when a connection has to
// go. It never decides which region a client is sent to, never recurses, never signs, and nothing on the path of an
// answer waits for another node, a lock that a writer holds, or a disk. It is the only package that imports a DNS
// library.
package dns
