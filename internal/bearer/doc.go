// Package bearer verifies JSON Web Tokens (RFC 7519) of issuers that the spec lists, against key sets (RFC 7517) that it
// fetches in the background.
//
// A request never waits for a fetch: a token is judged by the keys that are there. A key that nobody knows asks for a new
// fetch, at most once in ten seconds, and the request is refused meanwhile. When a fetch fails the keys before stay. What
// was verified is remembered by its hash until it expires, so that a signature is paid for once; when an issuer's keys
// change, all is forgotten.
//
// Algorithms are those that the issuer's entry allows, all with public keys: "none" and those with shared secrets cannot be
// allowed. URLs come from the spec alone, never from a token, and redirects are not followed. It uses go-jose for the
// signatures and keys: writing those anew would be the mistake that this package is there to prevent.
//
// It decides whose a token is; what a tenant may do is decided elsewhere. It never logs a token or a claim.
package bearer
