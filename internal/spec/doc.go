// Package spec defines the operator's declared state, type Spec: services, regions, models, aliases, tenants
// and policy. Decode parses and validates a text and reports every mistake with its position. A decoded Spec
// answers lookups without scans.
//
// The package never reads a file, never uses a network and never changes a Spec in place: a change is a new
// Spec.
package spec
