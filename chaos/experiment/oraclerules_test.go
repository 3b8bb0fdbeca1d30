package experiment_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
)

// The cache oracle computes what part of a workload's prompts a fleet's prefix caches can hold under each rule, by the order
// of arrival alone: no time, no engine, no queue. Each replica caches what it was sent, evicted in LRU order.
//
// The rules are local/pick's policies with their index and ledger. The ledger gets requests but no ends, so that load is all
// work so far. In addition there are the longest prefix alone, which shows the effect of load, and one pooled cache, which is
// the upper bound. A change to the index or to a policy that loses hits shows here first.

// tracePrompt is one request, in the order of arrival.
type tracePrompt struct {
	Text []gpu.Piece
	// Session is the key of a session hash.
	Session uint64
}

// cacheFleet is a number of equal replicas.
type cacheFleet struct {
	Replicas int
	// CacheTokens is the size of each cache, in blocks of Block tokens.
	CacheTokens, Block int
}

// ruleResult is the result of a rule.
type ruleResult struct {
	// Hit is the fraction of all blocks that was cached at the replica of the prompt.
	Hit float64
	// Imbalance is the greatest uncached work of a replica over the mean.
	Imbalance float64
}

// Rules that are not policies.
const (
	longestPrefix = "longest_prefix" // the replica with the longest cached prefix, at any load
	pooledCache   = "pooled"         // one cache with the size of all replicas'
)

// bytesPerToken of a prompt's text.
const bytesPerToken = 4

// playPrompts sends the prompts in order by a rule: a policy's name, longestPrefix or pooledCache. The error lists
// the rules.
func playPrompts(prompts []tracePrompt, f cacheFleet, rule string) (ruleResult, error) {
	if rule == pooledCache {
		f.CacheTokens, f.Replicas, rule = f.CacheTokens*f.Replicas, 1, "round_robin"
	}
	c, err := newReplicaChooser(f, rule)
	if err != nil {
		return ruleResult{}, err
	}
	caches, work := make([]*prefixCache, f.Replicas), make([]float64, f.Replicas)
	for i := range caches {
		caches[i] = newPrefixCache(f.CacheTokens / f.Block)
	}
	var hits, all, sum, most float64
	var blocks []uint64
	for i := range prompts {
		blocks = hashBlocks(blocks[:0], prompts[i].Text, f.Block)
		at := c.chooseReplica(&prompts[i])
		n := caches[at].matchPrefix(blocks)
		caches[at].addPrompt(blocks)
		hits, all = hits+float64(n), all+float64(len(blocks))
		work[at] += float64(len(blocks) - n)
		sum += float64(len(blocks) - n)
	}
	for _, w := range work {
		most = max(most, w)
	}
	return ruleResult{Hit: hits / max(all, 1), Imbalance: most * float64(f.Replicas) / max(sum, 1)}, nil
}

// hashBlocks is the hashes of the prompt's blocks, including a shorter last one.
func hashBlocks(dst []uint64, text []gpu.Piece, block int) []uint64 {
	left := gpu.CountTokens(text)
	return gpu.HashVariableBlocks(dst, text, func(int) int {
		n := min(block, left)
		left -= n
		return n
	})
}

// replicaChooser is a zone's choice of workers alone.
type replicaChooser struct {
	view       *pick.WorkerView
	rng        *rand.Rand
	now        time.Time
	longest    bool
	sentCounts []int64 // prompts sent to each
	blocks     []uint64
}

func newReplicaChooser(f cacheFleet, rule string) (*replicaChooser, error) {
	c := &replicaChooser{rng: rand.New(rand.NewPCG(1, 1)), now: time.Unix(0, 0), longest: rule == longestPrefix, sentCounts: make([]int64, f.Replicas)}
	if c.longest {
		rule = "least_connections" // among the replicas with the longest prefix
	}
	policy, err := pick.ParsePolicy(rule)
	if err != nil {
		return nil, fmt.Errorf("%w; or %s or %s", err, longestPrefix, pooledCache)
	}
	ledger, index := inflight.NewLedger(), prefix.NewIndex(1<<30)
	workers := make([]pick.WorkerSnapshot, f.Replicas)
	for i := range workers {
		id, ok := ledger.AddWorker()
		if !ok {
			return nil, fmt.Errorf("%d replicas are more than a zone has: at most %d", f.Replicas, perfmodel.MaxWorkers)
		}
		index.SetCacheSize(id, int64(f.CacheTokens), bytesPerToken)
		workers[i] = pick.WorkerSnapshot{ID: id, Name: fmt.Sprint("r", i), Rates: perfmodel.EstimatePrior("H100x4", "llama-3.1-70b").Rates}
	}
	c.view = pick.NewWorkerView(workers, ledger, index, policy)
	return c, nil
}

// chooseReplica returns a prompt's replica and records the prompt there.
func (c *replicaChooser) chooseReplica(p *tracePrompt) int {
	tokens := int64(gpu.CountTokens(p.Text))
	c.blocks = gpu.HashVariableBlocks(c.blocks[:0], p.Text, func(i int) int {
		if i >= blockhash.MaxBlocks {
			return 0
		}
		return blockhash.BlockSize(i) / bytesPerToken
	})
	q := &pick.PlacementQuery{PromptTokens: tokens, PromptBytes: tokens * bytesPerToken, Blocks: c.blocks, Key: p.Session}
	d, _ := pick.ChooseWorker(q, c.view, c.now, c.rng, nil) // there always is room: the caches' sizes are unknown to it
	if c.longest {
		d.Index = c.longestMatch()
	}
	id := c.view.Workers[d.Index].ID
	e := c.view.Ledger.DispatchRequest(id, tokens-d.CachedTokens, tokens, 0, c.now)
	c.view.Ledger.RecordFirstByte(&e, c.now)
	c.view.Index.InsertPrompt(id, c.blocks)
	c.sentCounts[d.Index]++
	return d.Index
}

// longestMatch is the replica with the longest match, the least loaded one of several.
func (c *replicaChooser) longestMatch() int {
	best, longest := -1, int64(-1)
	for i := range c.view.Workers {
		m := c.view.Index.MatchedBytes(c.view.Workers[i].ID, c.blocks)
		if m > longest || m == longest && c.sentCounts[i] < c.sentCounts[best] {
			best, longest = i, m
		}
	}
	return best
}
