// Package dns answers authoritatively for one zone, over UDP, TCP and TLS, from an immutable View that its owner swaps.
//
// It decides everything that belongs to the protocol: which messages are dropped, refused or malformed, what EDNS,
// Client Subnet (RFC 7871) and cookies (RFC 7873, 9018) mean, which names exist, how large an answer may be, who gets
// too many, and when a connection has to go. It never decides which region a client is sent to, never recurses, and
// nothing on the path of an answer waits for another node, a lock that a writer holds, or a disk. It is the only package
// that imports a DNS library.
//
// A zone with a Signer (signer.go) is signed as it is asked (DNSSEC, ECDSA P-256), and what does not exist is denied in
// compact form (RFC 9824, nsec.go). A set of records is signed when somebody first asks for it with DO: the library's path
// does so (prove.go) and the fast one finds the signature from then on (fast_prove.go). Signatures are kept across views
// by what they are of, so a view that answers what an earlier one did needs none. Which keys there are, and which one
// signs, is the owner's to say.
//
// There are two paths to an answer. The fast one (fast.go) takes what nearly every query is: it reads the bytes in
// place, copies records that were made beforehand, and allocates nothing; each reader of a socket runs it by itself and
// reads and writes in batches. Everything else goes to a fixed number of goroutines (slow.go) that use the library
// (handle.go), so that what is odd and slow takes nobody's time but its own. Both answer alike, which FuzzPathsAgree
// holds.
package dns
