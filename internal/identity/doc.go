// Package identity says who a node is and whom it may speak to: mutual TLS 1.3 with one SPIFFE URI per certificate,
// reloaded while running, and a small certificate authority for development.
//
// It decides whether a peer's certificate chains to our authority, names exactly one identity of our trust domain, and
// satisfies the caller's rule. Who a peer is comes from its certificate alone, never from an address, a host name or a
// payload: host names are not checked, because nodes move and identities do not.
//
// It never decides what a role may do (each listener passes its own rule), never issues certificates for production,
// never logs key material, and never lets a bad new file replace a good certificate.
package identity
