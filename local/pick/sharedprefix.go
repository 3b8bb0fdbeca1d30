package pick

import (
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
)

// PromptPrefix returns the beginning of the query's prompt; empty when it has several prompts or no known text.
func (q *PlacementQuery) PromptPrefix() inflight.PromptPrefix {
	if q.LongestPrompt > 0 || q.PromptBytes <= 0 || q.PromptTokens <= 0 {
		return inflight.PromptPrefix{}
	}
	return inflight.PromptPrefix{Blocks: q.Blocks[:min(len(q.Blocks), blockhash.MaxBlocks)], TokensPerByte: float64(q.PromptTokens) / float64(q.PromptBytes)}
}

// sharedKVOn returns how much less KV cache a worker's sequences hold than is reserved for them, in tokens, scaled by
// its hit rate. with includes the request itself.
func (v *WorkerView) sharedKVOn(at int, with bool) int64 {
	id := v.admissionInputs[at].id
	n := v.Ledger.SharedKV(id)
	if with {
		n = v.Ledger.SharedKVWith(id, v.query.PromptPrefix())
	}
	return int64(float64(n) * v.boundInputs[at].hitRate)
}

// kvUsageOn returns the part of total tokens of KV cache that a worker's sequences hold, at most 1.
func (v *WorkerView) kvUsageOn(at int32, total int64) float64 {
	held := v.Ledger.TotalsOf(v.admissionInputs[at].id).HeldKV() - v.sharedKVOn(int(at), false)
	return min(float64(max(held, 0))/float64(total), 1)
}
