// Package dns is the authoritative DNS server of one zone, over UDP, TCP and TLS. Server answers from an immutable
// Snapshot that its owner replaces.
//
// The package implements the protocol: which messages are dropped, refused or malformed, EDNS, Client Subnet (RFC
// 7871), cookies (RFC 7873, 9018), which names exist, the size of answers, response rate limiting and the life of
// connections. It does not choose the region of a client; Snapshot does. It never recurses. No answer waits for
// another node, for a disk, or for a lock that a writer holds. It is the only package that imports a DNS library.
//
// A zone with a Signer (signer.go) is signed online (DNSSEC, ECDSA P-256), with compact denial of existence (RFC
// 9824, nsec.go). A record set is signed at the first query with DO, on the slow path (signreply.go); after that the fast
// path finds the signature (fast_signed.go). SignatureCache finds signatures by content, so a new snapshot with equal
// answers needs no new ones. The owner supplies the keys and their order.
//
// There are two paths. The fast path (fast.go) serves nearly all queries: it parses the bytes in place, copies
// prepared records and allocates nothing. Each socket reader runs it and reads and writes in batches. Everything else
// goes to a fixed number of goroutines (slow.go) that use the library (handle.go), so unusual queries do not delay
// others. Both paths give the same answers, which FuzzPathsAgree checks.
package dns
