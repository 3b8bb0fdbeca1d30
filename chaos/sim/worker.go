package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/pick"
)

// worker is one engine and what its zone knows it by.
type worker struct {
	at      int32 // in run.workers
	zone    *zone
	name    string
	gpu     string
	engine  *gpu.Engine
	next    int64 // when its planned step event is due; never when there is none
	busy    int64 // ns in steps
	sent    int64
	cost    int64
	dead    int // causes of its death that last
	stalled int
	// slowdown is its group's.
	slowdown float64
	profile  gpu.Profile
	starts   uint64 // of its process, beside the first
	warmed   int64  // ns from a zone's start until its first request was answered
	declared discover.Worker
	model    string
	// before is what its engine had counted before it was last started anew.
	before gpu.Counters
}

const never = int64(1) << 62

func (r *run) newWorker(z *zone, g *Group, n int, rng *rand.Rand) (*worker, error) {
	p, err := gpu.Lookup(g.GPU, g.Model, g.TP)
	if err != nil {
		return nil, err
	}
	if g.Blocks > 0 {
		p.Blocks = g.Blocks
	}
	w := &worker{at: int32(len(r.workers)), zone: z, name: fmt.Sprintf("w%04d", n), gpu: g.declared(&p), next: never}
	noise := rand.New(rand.NewPCG(rng.Uint64(), uint64(w.at)))
	if r.s.noise != nil {
		noise = r.s.noise(int(w.at))
	}
	w.engine, err = gpu.NewEngine(gpu.EngineConfig{
		Profile: p, Limits: g.Limits, Salt: rng.Uint64(), Rand: noise, FastForward: true, HostBlocks: g.HostBlocks,
		OnStep: func(took time.Duration, decodes int) {
			w.busy += int64(took)
			if r.now >= int64(r.s.WarmUp) && r.now < int64(r.s.Duration) {
				r.out.ITL.addN(took+gpu.PerToken, decodes)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if took := w.warmUp(r.time(0).Add(-time.Second)); r.s.warms {
		w.warmed = int64(took)
	}
	w.profile, w.slowdown = p, 1
	if g.Slowdown > 0 {
		w.slowdown = g.Slowdown
	}
	w.engine.SetSlowdown(w.slowdown)
	w.model = p.Model
	w.cost = pick.PriorFor(w.gpu, w.model).CostMicros
	w.declared = discover.Worker{Name: w.name, URL: "http://" + w.name + ":8000", GPU: w.gpu, Models: []string{w.model}, Weight: 1}
	return w, nil
}

// warmUp has the engine answer the one request that an Agent sends before the first traffic, and returns how long it took.
func (w *worker) warmUp(now time.Time) time.Duration {
	s, err := w.engine.Submit(now, gpu.Request{PromptTokens: 2, OutputTokens: 1})
	for err == nil && !s.Done() {
		next, ok := w.engine.Next()
		if !ok {
			return 0
		}
		w.engine.Advance(next)
	}
	if err != nil {
		return 0
	}
	_, _, _, ended := s.Times()
	return ended.Sub(now) + gpu.Finish
}

// counters are the worker's totals over all its lives.
func (w *worker) counters() gpu.Counters {
	a, b := w.before, w.engine.Counters()
	return gpu.Counters{
		Prompt: a.Prompt + b.Prompt, Generated: a.Generated + b.Generated, PrefixQueries: a.PrefixQueries + b.PrefixQueries,
		PrefixHits: a.PrefixHits + b.PrefixHits, Preemptions: a.Preemptions + b.Preemptions, Steps: a.Steps + b.Steps,
	}
}

// plan keeps one step event for the worker's engine, at the time that the engine names.
func (r *run) plan(w *worker) {
	next, ok := w.engine.Next()
	if !ok || w.stalled > 0 || w.dead > 0 {
		w.next = never
		return
	}
	if at := max(int64(next.Sub(r.epoch)), r.now); at != w.next {
		w.next = at
		r.agenda.add(event{at: at, kind: evStep, who: w.at})
	}
}

// step lets a worker's engine do what is due, and tells of the tokens that were made.
func (r *run) step(w *worker) {
	if w.next != r.now || w.stalled > 0 || w.dead > 0 {
		return // planned anew meanwhile
	}
	w.next = never
	now := r.time(r.now)
	made := w.engine.Advance(now)
	for _, s := range made {
		r.token(s.Owner().(*ride), s, now)
	}
	r.plan(w)
	for _, a := range w.zone.agents {
		r.settle(a)
	}
}

// read is what the worker's page says now.
func (w *worker) read(now time.Time) engine.Reading {
	w.engine.Settle(now)
	g, c := w.engine.Gauges(), w.engine.Counters()
	return engine.Reading{
		At: now, LoadAt: now, Running: int64(g.Running), Waiting: int64(g.Waiting), KVUsage: g.KVUsage, KVSaid: true,
		KVTotal: int64(g.KVBlocks) * gpu.BlockTokens, PromptTokens: float64(c.Prompt), OutputTokens: float64(c.Generated),
		PrefixQueries: float64(c.PrefixQueries), PrefixHits: float64(c.PrefixHits), Preemptions: float64(c.Preemptions),
	}
}
