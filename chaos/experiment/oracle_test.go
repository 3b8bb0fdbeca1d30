package experiment_test

import (
	"container/list"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
)

// hitRateTolerance is how far a hit rate may be below the oracle's.
const hitRateTolerance = 0.03

// readMooncakePrompts reads a public trace in order; a request's session is its second block, as in the oracle.
func readMooncakePrompts(t *testing.T, name string) []tracePrompt {
	t.Helper()
	path := filepath.Join(testkit.TracesDir(t), "mooncake", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SPILLWAY_TRACES does not hold mooncake/%s: %v", name, err)
	}
	trace, err := load.OpenTrace(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var out []tracePrompt
	for {
		a, err := trace.NextArrival()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tracePrompt{Text: a.Prompt, Session: a.Prompt[min(1, len(a.Prompt)-1)].ID})
	}
}

// TestPublicTracesHitAsMuchAsTheOracle: on eight replicas no rule's hit rate is below that of a reference with exact
// knowledge of each cache. The conversation trace's figures are those of the public part.
func TestPublicTracesHitAsMuchAsTheOracle(t *testing.T) {
	for _, c := range []struct {
		trace  string
		tokens int
		want   map[string]float64
	}{
		{"conversation_0-2640s.jsonl.gz", 490_000, map[string]float64{"round_robin": .059, "consistent_hash": .163, longestPrefix: .044, "lmetric": .164, "predictive": .164, pooledCache: .169}},
		{"conversation_0-2640s.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .110, "consistent_hash": .346, longestPrefix: .136, "lmetric": .345, "predictive": .345, pooledCache: .345}},
		{"synthetic.jsonl.gz", 490_000, map[string]float64{"round_robin": .062, "consistent_hash": .347, longestPrefix: .351, "lmetric": .345, "predictive": .345, pooledCache: .361}},
		{"synthetic.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .194, "consistent_hash": .639, longestPrefix: .640, "lmetric": .639, "predictive": .639, pooledCache: .640}},
	} {
		prompts := readMooncakePrompts(t, c.trace)
		for rule, want := range c.want {
			r, err := playPrompts(prompts, cacheFleet{Replicas: 8, CacheTokens: c.tokens, Block: 512}, rule)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d tokens, %s: hit %.3f (oracle %.3f), imbalance %.2f", c.trace, c.tokens, rule, r.Hit, want, r.Imbalance)
			if r.Hit < want*(1-hitRateTolerance) {
				t.Errorf("%s, %d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.trace, c.tokens, rule, r.Hit, want)
			}
		}
	}
}

// makeConversations is conversations in turn: each continues its own last prompt, after a common beginning.
func makeConversations(sessions, turns int) []tracePrompt {
	rng := rand.New(rand.NewPCG(7, 7))
	texts := make([][]gpu.Piece, sessions)
	var out []tracePrompt
	for range sessions * turns {
		s := rng.IntN(sessions)
		if texts[s] == nil {
			texts[s] = []gpu.Piece{{ID: 1, Tokens: 512}}
		}
		texts[s] = append(texts[s], gpu.Piece{ID: rng.Uint64(), Tokens: 512 * (1 + rng.IntN(3))})
		out = append(out, tracePrompt{Text: append([]gpu.Piece(nil), texts[s]...), Session: uint64(s + 1)})
	}
	return out
}

// TestSampleHitsAsMuchAsThePool: with sufficiently large caches, rules that know prefixes come close to the bound,
// others stay far below it, and none exceeds it.
func TestSampleHitsAsMuchAsThePool(t *testing.T) {
	prompts := makeConversations(64, 12)
	fleet := cacheFleet{Replicas: 4, CacheTokens: 2_000_000, Block: 512}
	bound, err := playPrompts(prompts, fleet, pooledCache)
	if err != nil {
		t.Fatal(err)
	}
	for rule, least := range map[string]float64{"predictive": .97, "lmetric": .97, "cache_aware": .9, "consistent_hash": .8, "round_robin": 0} {
		r, err := playPrompts(prompts, fleet, rule)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: hit %.3f of %.3f, imbalance %.2f", rule, r.Hit, bound.Hit, r.Imbalance)
		if r.Hit < least*bound.Hit || r.Hit > bound.Hit || rule == "round_robin" && r.Hit > .8*bound.Hit {
			t.Errorf("%s hits %.3f of the blocks, the pool %.3f", rule, r.Hit, bound.Hit)
		}
		if rule == "predictive" && r.Imbalance > 1.5 {
			t.Errorf("%s: the busiest replica computes %.2f times the mean", rule, r.Imbalance)
		}
	}
}

// TestCacheEvictsOldestPromptFromItsEnd follows an LRU cache of three blocks step by step.
func TestCacheEvictsOldestPromptFromItsEnd(t *testing.T) {
	c := newPrefixCache(3)
	c.addPrompt([]uint64{1, 2, 3})
	c.addPrompt([]uint64{4})
	if c.matchPrefix([]uint64{1, 2, 3}) != 2 || c.matchPrefix([]uint64{4}) != 1 {
		t.Fatal("the fourth block pushed out another than the third")
	}
	c.addPrompt([]uint64{5, 6, 7, 8}) // more than fits: its beginning stays
	if c.matchPrefix([]uint64{5, 6, 7, 8}) != 3 || c.matchPrefix([]uint64{1}) != 0 {
		t.Fatal("a prompt longer than the cache does not leave its beginning there")
	}
}

func TestUnknownRuleIsAnError(t *testing.T) {
	if _, err := playPrompts(nil, cacheFleet{Replicas: 2, CacheTokens: 1024, Block: 512}, "best"); err == nil || !strings.Contains(err.Error(), longestPrefix) {
		t.Errorf("an unknown rule says %v", err)
	}
	if _, err := playPrompts(nil, cacheFleet{Replicas: 1 << 20, CacheTokens: 1024, Block: 512}, "lmetric"); err == nil {
		t.Error("a million replicas are taken")
	}
}

var runAgentic = flag.Bool("agentic", false, "replay an hour of 160 agents' sessions, which takes minutes")

// TestAgentsHitAsMuchAsTheOracle: the same for agents' sessions, 160 that begin within an hour with pauses of a
// minute at most: `make oracle`.
func TestAgentsHitAsMuchAsTheOracle(t *testing.T) {
	if !*runAgentic {
		t.Skip("minutes of work: -agentic runs it")
	}
	feed, err := load.OpenWorkload(load.Workload{Name: "w4", Traces: testkit.TracesDir(t), Sessions: 160, Over: time.Hour, MaxThink: time.Minute, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var prompts []tracePrompt
	for {
		at, ok, err := feed.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		r := feed.Pop()
		prompts = append(prompts, tracePrompt{Text: r.Prompt, Session: r.Session})
		feed.FinishRequest(r, at+time.Duration(r.Output)*20*time.Millisecond, true)
	}
	for _, c := range []struct {
		tokens int
		want   map[string]float64
	}{
		{490_000, map[string]float64{"round_robin": .103, "consistent_hash": .361, longestPrefix: .349, "lmetric": .354, "predictive": .361, pooledCache: .480}},
		{3_000_000, map[string]float64{"round_robin": .438, "consistent_hash": .953, longestPrefix: .955, "lmetric": .951, "predictive": .955, pooledCache: .955}},
	} {
		for _, rule := range slices.Sorted(maps.Keys(c.want)) {
			r, err := playPrompts(prompts, cacheFleet{Replicas: 8, CacheTokens: c.tokens, Block: 64}, rule)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%d prompts, %d tokens, %-16s hit %.3f (oracle %.3f), imbalance %.2f\n", len(prompts), c.tokens, rule, r.Hit, c.want[rule], r.Imbalance)
			if r.Hit < c.want[rule]*(1-hitRateTolerance) {
				t.Errorf("%d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.tokens, rule, r.Hit, c.want[rule])
			}
		}
	}
}

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

// prefixCache is one replica's prefix cache: blocks by the hash of everything up to their end, evicted in LRU order.
type prefixCache struct {
	capacity int
	blocks   map[uint64]*list.Element
	recent   *list.List // of hashes, the newest first
}

func newPrefixCache(room int) *prefixCache {
	return &prefixCache{capacity: max(room, 1), blocks: map[uint64]*list.Element{}, recent: list.New()}
}

// matchPrefix is the number of leading blocks in the cache.
func (c *prefixCache) matchPrefix(blocks []uint64) int {
	for i, h := range blocks {
		if c.blocks[h] == nil {
			return i
		}
	}
	return len(blocks)
}

// addPrompt adds a prompt's blocks from its end on, so that its end is evicted first.
func (c *prefixCache) addPrompt(blocks []uint64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if e := c.blocks[h]; e != nil {
			c.recent.MoveToFront(e)
			continue
		}
		c.blocks[h] = c.recent.PushFront(h)
	}
	for len(c.blocks) > c.capacity {
		last := c.recent.Back()
		delete(c.blocks, c.recent.Remove(last).(uint64))
	}
}
