// Package explain holds the Record of one decision: every candidate, what dropped it, and its cost terms in
// seconds. The same type serves all three tiers, so that a query can be followed from a resolver to a GPU.
//
// A nil *Record is the normal case and costs nothing: every method is safe on nil and allocates nothing. Deciders
// therefore write their reasoning down unconditionally and never branch on whether somebody is reading it.
//
// It decides nothing, and it never carries a prompt, a key or a token.
package explain
