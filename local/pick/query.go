package pick

import (
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
)

// PlacementQuery is what one request needs of a worker.
type PlacementQuery struct {
	// PromptTokens is the estimated or counted length of the prompt.
	PromptTokens int64
	// LongestPrompt is the longest prompt of a request that holds several, each a sequence of its own; 0 when it holds one.
	LongestPrompt int64
	// PromptBytes is the length in bytes of what Blocks were hashed from; it turns matched blocks into tokens.
	PromptBytes int64
	// OutputTokens is the expected length of the answer.
	OutputTokens int64
	// Class has no effect on the choice; it is shown in the explanation.
	Class spec.Class
	// MaxWait is the maximum prefill backlog of a worker that counts as having room. An idle worker always has room.
	MaxWait time.Duration
	// SLO is what the request asked for.
	SLO SLO
	// Share is how other tenants' claims limit where the request may go.
	Share ShareLimits
	// Waited is how long it has waited in the queue.
	Waited time.Duration
	// Blocks are the prompt's chained block hashes (see AppendBlockHashes); nil when prefixes do not matter.
	Blocks []uint64
	// Key is the affinity key of consistent_hash; 0 means that the request has none and may go to any worker.
	Key uint64
	// Exclude are workers that already failed this request.
	Exclude []int32
	// Pools are the pools whose workers may take the request, as bits; 0 means the workers in no pool.
	Pools uint64
	// Overflow also allows workers in no pool while none of its pools has room.
	Overflow bool
	// Only are the workers that may take the request besides what its pools allow; nil means all.
	Only WorkerSet
}

// WorkerSet is a set of workers, as one bit for each ledger slot.
type WorkerSet []uint64

// AddWorker returns the set with a worker added.
func (s WorkerSet) AddWorker(id int32) WorkerSet {
	for int(id/64) >= len(s) {
		s = append(s, 0)
	}
	s[id/64] |= 1 << (id % 64)
	return s
}

// HasWorker reports whether a worker is in the set.
func (s WorkerSet) HasWorker(id int32) bool {
	return id >= 0 && int(id/64) < len(s) && s[id/64]&(1<<(id%64)) != 0
}

// SLO is what a request asked for; zero fields mean no target.
type SLO struct {
	// TTFT is the requested time to first token. A request that has one uses only KV cache that is free, and none that
	// is overcommitted, which an engine may let it wait for.
	TTFT time.Duration
	// TPOT is the requested time per output token. Workers that would exceed it are left out while there is another.
	// See filterByTPOT.
	TPOT time.Duration
	// WaitForTPOT is set if the request waits rather than joins a batch too large for TPOT.
	WaitForTPOT bool
}

// ShareLimits are the limits that a tenant's fair share sets on a placement. The zero value sets none.
type ShareLimits struct {
	// Contended is set while other requests wait as well: a worker then has room only while little waits inside it.
	Contended bool
	// ReserveHeadroom keeps a fifth of a worker's KV cache and of TPOT free: the tenant has its share of the zone already.
	ReserveHeadroom bool
	// OverShare is set if the request's tenant is above its fair share: it is admitted only where it hardly slows others
	// down. See filterOverShare.
	OverShare bool
}

// longestPrompt returns the longest prompt in the request, in tokens.
func (q *PlacementQuery) longestPrompt() int64 {
	prompt := max(0, q.PromptTokens)
	if q.LongestPrompt > 0 {
		return min(prompt, q.LongestPrompt)
	}
	return prompt
}

// ContextTokens returns the longest sequence of the request, prompt and expected output, in tokens.
func (q *PlacementQuery) ContextTokens() int64 { return q.longestPrompt() + max(0, q.OutputTokens) }

// KVTokens returns how much of a worker's KV cache the request holds at a time, in tokens.
func (q *PlacementQuery) KVTokens() int64 {
	out := max(0, q.OutputTokens)
	if q.LongestPrompt > 0 {
		return min(max(0, q.PromptTokens), max(q.longestPrompt(), prefillPassTokens)) + out
	}
	return max(0, q.PromptTokens) + out
}

// PromptPrefix returns the beginning of the query's prompt; empty when it has several prompts or no known text.
func (q *PlacementQuery) PromptPrefix() inflight.PromptPrefix {
	if q.LongestPrompt > 0 || q.PromptBytes <= 0 || q.PromptTokens <= 0 {
		return inflight.PromptPrefix{}
	}
	return inflight.PromptPrefix{Blocks: q.Blocks[:min(len(q.Blocks), blockhash.MaxBlocks)], TokensPerByte: float64(q.PromptTokens) / float64(q.PromptBytes)}
}

// AllowsWorker reports whether the request's pools and Only allow the worker, independent of room.
func (q *PlacementQuery) AllowsWorker(w *WorkerSnapshot) bool {
	return q.AllowsPools(w.Pools) && (q.Only == nil || q.Only.HasWorker(w.ID))
}

// AllowsPools reports whether the request's pools allow a worker that is dedicated to these pools; 0 is a worker in no pool.
func (q *PlacementQuery) AllowsPools(pools uint64) bool {
	return pools&q.Pools != 0 || pools == 0 && (q.Pools == 0 || q.Overflow)
}

// HashAffinityKey hashes an affinity key for PlacementQuery.Key. It never returns 0.
func HashAffinityKey(seed uint64, text string) uint64 {
	return max(1, blockhash.ChainHash(seed, hashName(text)))
}

// HashAffinityKeyBytes is HashAffinityKey for a text in bytes.
func HashAffinityKeyBytes(seed uint64, text []byte) uint64 {
	return max(1, blockhash.ChainHash(seed, xxhash.Sum64(text)))
}
