// Package directive translates the directives of the global tier into what a gateway's parts and its local instances
// need: the routing policy, leases of quotas, and the directives of the zones.
package directive
