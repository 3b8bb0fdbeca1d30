// Package identity authenticates nodes to each other: mutual TLS 1.3 with one SPIFFE URI per certificate, certificates
// that are read again when their files change, and a small certificate authority for development.
//
// A peer is accepted if its certificate chains to the trusted authority, contains exactly one identity of the same
// trust domain, and satisfies the caller's rule. A peer's identity comes from its certificate alone. Host names are not
// checked, because nodes move between hosts and keep their identities.
//
// What a role may do is the rule of each listener. The package issues no certificates for production and logs no key
// material, and an invalid new file does not replace a valid certificate.
package identity
