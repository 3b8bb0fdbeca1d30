// Package spec is the operator's declared state: services, regions, models, aliases, tenants and policy. It decides
// whether a text is a valid spec, says where and why not, and answers lookups on a valid one.
//
// It never reads a file, never talks to a network and never changes a Spec in place: a change is a new Spec.
package spec
