// Package oracle says what part of a workload's prompts a fleet's prefix caches can hold under each rule, by the order of
// arrival alone: no time, no engine, no queue. Each replica caches what it was sent, least recently used out first.
//
// The rules are the shipped ones: local/pick's policies over its index and its ledger, which is told of what is sent and
// never of anything's end, so that load means all work until now. Besides these there are the longest prefix alone, which
// shows what load is good for, and one pooled cache, which is the bound. A change to the index or to a policy that loses
// hits shows here first.
//
// It never says how fast anything is.
package oracle
