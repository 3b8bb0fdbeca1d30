// Package abusetest is a child that abuses a parent while it has a valid certificate: RunAbuser floods, claims a
// false identity or sends garbage, and reconnects whenever it is disconnected. It is a separate package under uplink
// because QUIC is internal to package uplink. It serves benchmarks and tests, and is never imported by a tier.
package abusetest
