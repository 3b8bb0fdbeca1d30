// Package oracle computes what part of a workload's prompts a fleet's prefix caches can hold under each rule, by the
// order of arrival alone: no time, no engine, no queue. Each replica caches what it was sent, evicted in LRU order.
//
// The rules are local/pick's policies with their index and ledger. The ledger gets requests but no ends, so that load
// is all work so far. In addition there are the longest prefix alone, which shows the effect of load, and one pooled
// cache, which is the upper bound. A change to the index or to a policy that loses hits shows here first.
//
// It computes no times.
package oracle
