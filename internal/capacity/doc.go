// Package capacity is the currency of the house: what a subtree of GPUs can do, with units, freshness and credit for
// work in flight. A Summary is a mergeable value, so the same type and code serve every tier, and what goes up depends
// on the number of models, never on the number of GPUs.
//
// It decides what two statements mean together and how old is too old. It never decides where a request goes.
package capacity
