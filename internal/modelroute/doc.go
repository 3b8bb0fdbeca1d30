// Package modelroute determines, by the rules of the spec, which model answers a request and which workers may:
// aliases with weights, conditions and pins, fallbacks to smaller models, and dedicated worker pools.
// ResolveModel resolves an alias, FallbackModels lists fallbacks, FindPool finds a pool.
//
// It is used by the gateway, by a zone without a region, and by explain in both. It never changes a spec and
// keeps no state.
//
// # How an alias is resolved
//
// A pin (the header X-Spillway-Target) wins if the alias lists it, regardless of its weight and conditions.
// Otherwise targets with weight 0 are excluded, and if the request meets the conditions of any target, so are
// the targets without conditions. Among the rest, a request with a session uses weighted rendezvous hashing:
// each target gets the score -ln(u)/weight, with u in (0,1) from the hash of alias, tenant, session and model,
// and the lowest score wins. The score of a target depends only on its own weight, so a greater weight takes
// sessions from the others and moves none between them. A request without a session is distributed by weight.
package modelroute
