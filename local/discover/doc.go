// Package discover finds the workers of a zone from five sources: the configuration, a watched file, DNS names, pods of
// Kubernetes clusters (package kube), and workers that register themselves. Sources merges them into one list. An
// operator's entries take precedence over those from DNS, these over pods, and pods over registrations.
//
// The package does not connect to workers or judge them. No failure removes a worker: after a mistake in the file or
// a failed lookup the last good list stays in force, and an empty DNS answer takes effect only after a grace period.
// Only a worker that registered itself is removed when it does not renew, as the lease demands.
//
// A worker may register only at an address that the operator allows. The check is of the address and not of the name,
// and the checked address is the one that is dialed.
package discover
