// Package route says, by the spec's rules, which model answers a request and which workers may: aliases with weights,
// conditions and pins, fallbacks to smaller models, and pools of workers that are set apart.
//
// It is used by the gateway, by a zone that stands alone, and by explain at both.
//
// # How an alias is resolved
//
// A pin (the header X-Spillway-Target) wins when the alias lists it, whatever its weight and conditions. Otherwise
// targets with weight 0 are left out, and if the request meets the conditions of any target, the targets without
// conditions are too. Among what is left, a request that names a session goes by weighted rendezvous hashing: each
// target gets the score -ln(u)/weight, with u drawn by hashing alias, tenant, session and model, and the least score
// wins. A target's score depends on nothing but its own weight, so that a greater weight takes sessions from the others
// and moves none between them. A request that names no session goes anywhere by weight.
package route
