package oracle

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/pick"
)

// Prompt is one request, in the order of arrival.
type Prompt struct {
	Text []gpu.Piece
	// Session is what a session hash goes by.
	Session uint64
}

// Fleet is equal replicas.
type Fleet struct {
	Replicas int
	// Tokens that each one's cache holds, in blocks of so many tokens.
	Tokens, Block int
}

// Result of a rule.
type Result struct {
	// Hit is the part of all blocks that was cached where the prompt was sent.
	Hit float64
	// Imbalance is the greatest uncached work of a replica over the mean.
	Imbalance float64
}

// Rules that are no policies.
const (
	Longest = "longest_prefix" // where most of the prompt is believed to be, whatever the load
	Pooled  = "pooled"         // one cache of all replicas' size
)

// bytesPerToken of a prompt's text.
const bytesPerToken = 4

// Play sends the prompts in order by a rule: a policy's name, Longest or Pooled. The error says which rules there are.
func Play(prompts []Prompt, f Fleet, rule string) (Result, error) {
	if rule == Pooled {
		f.Tokens, f.Replicas, rule = f.Tokens*f.Replicas, 1, "round_robin"
	}
	c, err := newChooser(f, rule)
	if err != nil {
		return Result{}, err
	}
	caches, work := make([]*cache, f.Replicas), make([]float64, f.Replicas)
	for i := range caches {
		caches[i] = newCache(f.Tokens / f.Block)
	}
	var hits, all, sum, most float64
	var blocks []uint64
	for i := range prompts {
		blocks = cut(blocks[:0], prompts[i].Text, f.Block)
		at := c.choose(&prompts[i])
		n := caches[at].match(blocks)
		caches[at].take(blocks)
		hits, all = hits+float64(n), all+float64(len(blocks))
		work[at] += float64(len(blocks) - n)
		sum += float64(len(blocks) - n)
	}
	for _, w := range work {
		most = max(most, w)
	}
	return Result{Hit: hits / max(all, 1), Imbalance: most * float64(f.Replicas) / max(sum, 1)}, nil
}

// cut is the prompt's blocks, the last one as it is.
func cut(dst []uint64, text []gpu.Piece, block int) []uint64 {
	left := gpu.Tokens(text)
	return gpu.Cut(dst, text, func(int) int {
		n := min(block, left)
		left -= n
		return n
	})
}

// chooser is a zone's worker choice with nothing around it.
type chooser struct {
	view    *pick.View
	rng     *rand.Rand
	now     time.Time
	longest bool
	loaded  []int64 // prompts sent to each
	blocks  []uint64
}

func newChooser(f Fleet, rule string) (*chooser, error) {
	c := &chooser{rng: rand.New(rand.NewPCG(1, 1)), now: time.Unix(0, 0), longest: rule == Longest, loaded: make([]int64, f.Replicas)}
	policy := pick.LeastConnections
	if !c.longest {
		var err error
		if policy, err = pick.ParsePolicy(rule); err != nil {
			return nil, fmt.Errorf("%w; or %s or %s", err, Longest, Pooled)
		}
	}
	ledger, index := pick.NewLedger(), pick.NewIndex(1<<30)
	workers := make([]pick.Worker, f.Replicas)
	for i := range workers {
		id, ok := ledger.Add()
		if !ok {
			return nil, fmt.Errorf("%d replicas are more than a zone has: at most %d", f.Replicas, pick.MaxWorkers)
		}
		index.Reach(id, int64(f.Tokens), bytesPerToken)
		workers[i] = pick.Worker{ID: id, Name: fmt.Sprint("r", i), Rates: pick.PriorFor("H100x4", "llama-3.1-70b").Rates}
	}
	c.view = pick.NewView(workers, ledger, index, policy)
	return c, nil
}

// choose names a prompt's replica and books the prompt there.
func (c *chooser) choose(p *Prompt) int {
	tokens := int64(gpu.Tokens(p.Text))
	c.blocks = gpu.Cut(c.blocks[:0], p.Text, func(i int) int {
		if i >= pick.MaxBlocks {
			return 0
		}
		return pick.BlockSize(i) / bytesPerToken
	})
	q := &pick.Query{PromptTokens: tokens, PromptBytes: tokens * bytesPerToken, Blocks: c.blocks, Key: p.Session}
	d, _ := pick.Choose(q, c.view, c.now, c.rng, nil) // there always is room: nothing is known of the caches' sizes
	if c.longest {
		d.Index = c.warmest()
	}
	id := c.view.Workers[d.Index].ID
	e := c.view.Ledger.Dispatch(id, tokens-d.Cached, tokens, 0, c.now)
	c.view.Ledger.FirstByte(&e, c.now)
	c.view.Index.Insert(id, c.blocks)
	c.loaded[d.Index]++
	return d.Index
}

// warmest holds most of the prompt, the least loaded one of several.
func (c *chooser) warmest() int {
	best, longest := -1, int64(-1)
	for i := range c.view.Workers {
		m := c.view.Index.Match(c.view.Workers[i].ID, c.blocks)
		if m > longest || m == longest && c.loaded[i] < c.loaded[best] {
			best, longest = i, m
		}
	}
	return best
}
