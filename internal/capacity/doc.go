// Package capacity is the currency of the house: what a subtree of GPUs can do, with units, freshness and credit for
// work in flight. A Summary is a mergeable value, so the same type and code serve every tier, and what goes up depends
// on the number of models, never on the number of GPUs.
//
// It decides what two statements mean together (Merge for disjoint subtrees, Newest for one subtree at two moments),
// how a statement is written and bounded on the wire (Encode, Diff), and how old is too old (Book). It never decides
// where a request goes, and it reads no clock: callers say what time it is.
package capacity

//go:generate protoc -I capacitypb --go_out=capacitypb --go_opt=paths=source_relative capacitypb/capacity.proto
