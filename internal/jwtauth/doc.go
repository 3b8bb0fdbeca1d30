// Package jwtauth verifies JSON Web Tokens (RFC 7519) of the issuers in the spec, against key sets (RFC 7517)
// that it fetches in the background. Verifier is its main type.
//
// A request never waits for a fetch: a token is verified with the keys at hand. An unknown key triggers a
// fetch, at most every ten seconds, and the request is refused meanwhile. If a fetch fails the old keys stay.
// Verified tokens are cached by hash until they expire, so that each signature is checked once; when the keys
// of an issuer change, the cache is cleared.
//
// Algorithms are those allowed by the issuer's entry, all with public keys: "none" and those with shared
// secrets cannot be allowed. URLs come only from the spec, never from a token, and redirects are not followed.
// The package uses go-jose for signatures and keys: a new implementation of those would be the kind of mistake
// that it must prevent.
//
// It determines the tenant of a token; authorization is decided elsewhere. It never logs a token or a claim.
package jwtauth
