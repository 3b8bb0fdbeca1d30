// Package capacity describes the capacity of a subtree of GPUs: amounts with units, their age, and acknowledgements of
// dispatched work. A Summary is mergeable, so the same type and code serve every tier, and the size of a report depends
// on the number of models and not on the number of GPUs.
//
// The package merges summaries (MergeSummaries for disjoint subtrees, NewestSummary for one subtree at two moments),
// encodes and bounds them (EncodeSummary, DiffSummaries), and classifies their age (SummaryTable). Routing decisions
// are made elsewhere. It reads no clock: callers pass the time.
package capacity

//go:generate protoc -I capacitypb --go_out=capacitypb --go_opt=paths=source_relative capacitypb/capacity.proto
