// Package explain holds the Explanation of one decision: every candidate, why it was ineligible, and its cost terms in
// seconds. All three tiers use the same type, so that a request can be followed from the DNS resolver to the GPU.
//
// A nil *Explanation is the normal case: every method works on nil and allocates nothing, so deciders record their
// reasons unconditionally.
//
// An Explanation holds no prompt, no key and no token.
package explain
