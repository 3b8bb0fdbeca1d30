package lab

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// possibleBlock is the tokens by which the bound's cache goes. Engines cache blocks of 16, so that a prompt has up to 63 tokens less
// here than it could have: milliseconds.
const possibleBlock = 64

// othersShare is how many times as long a request takes on a worker that is half busy with others', which it shares its time
// with: 1/(1 - 0.5). An objective that is met with nothing to spare beside an idle worker alone says nothing of a fleet that
// is used.
const othersShare = 2

// alone is a worker that has one request at a time and a cache without end, in which lies whatever was asked of anybody before.
type alone struct {
	profile gpu.Profile
	slow    float64
	chunk   int // tokens of a step
	seen    map[uint64]struct{}
	blocks  []uint64
}

// What an attainment can be a part of.
const (
	ofAll      = "all"
	ofPossible = "possible"
)

// objectives are what searches ask for at each load, so that policies that are searched with the same requests find it once.
type objectives struct {
	mu    sync.Mutex
	found map[barKey]float64
}

type barKey struct {
	at    int // the case
	vary  string
	value float64
	seed  uint64
}

// bar is the attainment that a search asks for in a case that has the value in it.
func (p *play) bar(c *Case, at int, value float64, seed uint64) (float64, error) {
	k := c.Capacity
	if k.Of != ofPossible {
		return k.Attainment, nil
	}
	key := barKey{at, c.Vary, value, seed}
	p.bars.mu.Lock()
	part, ok := p.bars.found[key]
	p.bars.mu.Unlock()
	if ok {
		return k.Attainment * part, nil
	}
	part, err := c.possible(p.e, p.o.Traces, seed)
	if err != nil {
		return 0, err
	}
	p.bars.mu.Lock()
	defer p.bars.mu.Unlock()
	if p.bars.found == nil {
		p.bars.found = map[barKey]float64{}
	}
	p.bars.found[key] = part
	return k.Attainment * part, nil
}

// possible is the part of the case's measured requests that a worker could meet which is half busy with others' and has all that was
// asked before in its cache, 0 to 1. It depends on the fleet's engines and on what is asked, and on no policy.
func (c *Case) possible(e *Experiment, traces string, seed uint64) (float64, error) {
	feed, err := c.open(e, traces, seed)
	if err != nil {
		return 0, err
	}
	defer feed.Close()
	a := c.fastest()
	var good, all float64
	for {
		at, ok, err := feed.Peek()
		if err != nil {
			return 0, err
		}
		if !ok {
			return ratio(good, all), nil
		}
		r := feed.Pop()
		ttft, tpot, e2e := a.serve(r)
		if at >= e.WarmUp {
			all++
			if c.SLO.met(othersShare*ttft, othersShare*tpot, othersShare*e2e) {
				good++
			}
		}
		feed.Ended(r, at+e2e, true)
	}
}

// met says whether an answer with these times meets the objective.
func (s *SLO) met(ttft, tpot, e2e time.Duration) bool {
	within := func(v, bound time.Duration) bool { return bound == 0 || v <= bound }
	return within(ttft, s.TTFT) && within(tpot, s.TPOT) && within(e2e, s.E2E)
}

// fastest is the fleet's fastest worker, by how long it prefills a long prompt.
func (c *Case) fastest() *alone {
	var best *alone
	for i := range c.Fleet {
		g := &c.Fleet[i]
		p, err := gpu.Lookup(g.GPU, g.Model, g.TP)
		if err != nil {
			continue // decoding has refused it
		}
		engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: p})
		if err != nil {
			continue
		}
		a := &alone{profile: p, slow: g.Slowdown, chunk: engine.Limits().MaxBatchedTokens, seen: map[uint64]struct{}{}}
		if best == nil || a.prefill(0, 8192) < best.prefill(0, 8192) {
			best = a
		}
	}
	return best
}

// serve is how long a request takes: to its first token, between two tokens on average, and to the last.
func (a *alone) serve(r *load.Request) (ttft, tpot, e2e time.Duration) {
	ttft = gpu.Ingest + a.prefill(a.cached(r), r.PromptTokens)
	if more := r.Output - 1; more > 0 {
		tpot = a.step(gpu.Load{Decodes: 1, DecodeContext: r.PromptTokens + r.Output/2})
		e2e = time.Duration(more) * tpot
	}
	return ttft, tpot, ttft + e2e + gpu.Finish
}

// cached is how much of a prompt is in the cache, which then holds it and its answer whole. The last token never counts.
func (a *alone) cached(r *load.Request) int {
	text := r.Prompt
	if r.Answer != 0 {
		text = append(text[:len(text):len(text)], load.Piece{ID: r.Answer, Tokens: r.Output})
	}
	a.blocks = gpu.Hashes(a.blocks[:0], text, possibleBlock)
	n := 0
	for n < len(a.blocks) {
		if _, ok := a.seen[a.blocks[n]]; !ok {
			break
		}
		n++
	}
	for _, b := range a.blocks[n:] {
		a.seen[b] = struct{}{}
	}
	return max(min(n*possibleBlock, r.PromptTokens-1), 0)
}

// prefill is how long the prompt takes from so many tokens on, in steps of what the engine takes in one.
func (a *alone) prefill(from, to int) (sum time.Duration) {
	for from < to {
		n := min(a.chunk, to-from)
		sum += a.step(gpu.Load{Prefill: n, PrefillContext: float64(from) + float64(n)/2})
		from += n
	}
	return sum
}

func (a *alone) step(l gpu.Load) time.Duration {
	return time.Duration(float64(a.profile.StepTime(l)) * a.slow)
}
