package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// maxAcks bounds the parents that are remembered.
const maxAcks = capacity.MaxAcks

// enter binds a visit to a worker, now or once one has room. The second result refuses it instead.
func (a *Agent) enter(ctx context.Context, v *visit) (*attempt, *openai.Error) {
	f := a.floor
	at, refusal, waits := f.arrive(v, time.Now())
	if !waits {
		return at, refusal
	}
	f.poke()
	v.reportQueued()
	at, refusal = f.await(ctx, v)
	if at != nil {
		v.reportStarted()
	}
	return at, refusal
}

// await waits until a visit in the queue is given a worker, is refused, or leaves.
func (f *floor) await(ctx context.Context, v *visit) (*attempt, *openai.Error) {
	var late <-chan time.Time
	if !v.item.Deadline.IsZero() {
		t := time.NewTimer(time.Until(v.item.Deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case d := <-v.ready:
		return d.attempt, d.refusal
	case <-ctx.Done():
		return f.leave(v, openai.Upstream("the client left while it waited"), time.Now())
	case <-late:
		now := time.Now()
		return f.leave(v, f.tooLate(v, now), now)
	}
}

// arrive tries to place a visit and lets it wait otherwise.
func (f *floor) arrive(v *visit, now time.Time) (at *attempt, refusal *openai.Error, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[v.model]
	if p == nil || len(p.workers) == 0 {
		f.offered(v, now)
		return nil, openai.ModelNotFound(v.model, f.servedLocked()), false
	}
	f.ack(v.hop.Ticket)
	f.fit(v, p)
	f.offered(v, now)
	if f.closed(now) {
		return nil, openai.NoCapacity(v.model, openai.MinRetryAfter), false
	}
	if p.queue.Len() == 0 {
		if at = f.place(v, p, now); at != nil {
			f.line(v, p, now)
			v.item.Cost = at.cost()
			p.queue.Pass(&v.item, now)
			return at, nil, false
		}
	}
	switch reason := f.outlook(v, p, now); reason {
	case pick.ReasonTooLong:
		return nil, openai.ContextTooLong(int(v.query.Length()), f.longest(v, p)), false
	case pick.ReasonNoWorker:
		if refusal = f.awaitLoad(v, now); refusal != nil {
			return nil, refusal, false
		}
	case pick.ReasonNoPool:
		return nil, f.noPool(v), false
	}
	return f.wait(v, p, now)
}

// patience is how long a visit may wait when its caller named no deadline: ten times its class's target, and what its
// model may take to load.
func (f *floor) patience(v *visit) time.Duration {
	return max(10*f.orders.ttft(v.model, v.class), 10*time.Second) + v.cold
}

// fit fills in what the choice needs and only the floor knows.
func (f *floor) fit(v *visit, p *pool) {
	q := &v.query
	counted := min(max(p.counted.or(1), 0.25), 4)
	if v.exact {
		counted = 1
	}
	images := min(int64(v.env.ImageTokens), v.estimate) // bytes of text say nothing about them
	q.PromptTokens = max(1, int64(float64(v.estimate-images)*counted)+images)
	if v.longest > 0 {
		q.Longest = max(1, int64(float64(v.longest)*counted))
	}
	q.OutputTokens = f.expectedOutput(v)
	q.PromptBytes = int64(len(v.env.Prompt))
	q.Class = v.class
	f.assign(v)
	q.MaxWait = f.orders.ttft(v.model, v.class) / 2
	q.Contended = false
	if q.Blocks == nil {
		q.Blocks = pick.Blocks(v.blocks[:0], pick.Seed(f.secret, f.orders.prefixOwner(v.hop.Tenant), v.model), v.env.Prompt)
		q.Key = f.orders.hashKey(v)
		f.mark(v)
	}
}

// What is reserved of KV cache for an answer: the length that so many of such answers do not exceed.
const (
	reserveShare  = 0.8
	usualOutput   = 384 // tokens, of a model that has answered nothing
	leastReserved = 16
)

// expectedOutput is what such answers' lengths have been, inside what the request allows.
func (f *floor) expectedOutput(v *visit) int64 {
	if !v.shape.Generates() || v.longest > 0 {
		return 0
	}
	limit := int64(v.env.MaxTokens)
	if limit <= 0 {
		limit = f.orders.maxOutput(v.model)
	}
	likely := f.lengths.Predict(v.model, v.hop.Tenant, v.query.PromptTokens, reserveShare, usualOutput)
	return min(limit, max(likely, leastReserved)) * int64(max(v.env.N, 1))
}

// place binds a visit to a worker that has room; nil when none has.
func (f *floor) place(v *visit, p *pool, now time.Time) *attempt {
	v.query.Spare = p.queue.Standing(v.flow(), v.class) == queue.Over
	f.guest(v, p, now)
	v.query.Steady, v.query.Waited = f.steady(v, now), v.item.Waited(now)
	choice, ok := pick.Choose(&v.query, p.view, now, f.rng, nil)
	if !ok {
		return nil
	}
	f.index.Insert(choice.ID, v.query.Blocks)
	p.warms(v, now)
	f.placed(v, choice.Cached, now)
	return f.book(v, p, choice, now)
}

// book writes an attempt down.
func (f *floor) book(v *visit, p *pool, choice pick.Verdict, now time.Time) *attempt {
	w := p.workers[choice.Index]
	rates := w.learner.Rates()
	own := rates.Work(v.query.PromptTokens, choice.Cached)
	load := f.ledger.Load(w.id, rates.PrefillRate, now)
	begin := v.query.Beginning()
	begin.Home = 2*choice.Cached > v.query.PromptTokens
	at := &attempt{
		visit: v, worker: w, pool: p, choice: choice, sent: now, exact: w.modeIndex(), pace: 1 / rates.PrefillRate,
		work: float64(load.Backlog + load.ForeignBacklog + own), seqs: float64(load.Running + load.ForeignSeqs + 1),
		held:  float64(load.KV + load.ForeignKV + v.query.PromptTokens),
		entry: f.ledger.DispatchPrompt(w.id, own, v.query.KV(), w.reading.KVTotal, begin, now),
	}
	at.foreseen = f.foreseen(at)
	w.breaker.Began(now)
	w.open++
	w.began(v.model, now)
	w.attempts[at] = struct{}{}
	p.prompt.add(float64(v.query.PromptTokens))
	p.pace.add(at.pace)
	return at
}

// outlook says whether waiting is of any use.
func (f *floor) outlook(v *visit, p *pool, now time.Time) string {
	d, ok := pick.Look(&v.query, p.view, now, f.rng, nil)
	if ok {
		return pick.ReasonBusy
	}
	return d.Reason
}

func (f *floor) longest(v *visit, p *pool) int {
	var n int64
	for i := range p.view.Workers {
		w := &p.view.Workers[i]
		if !v.query.For(w) {
			continue
		}
		n = max(n, limitOf(w))
	}
	return int(n)
}

// limitOf is how many tokens of prompt and answer one request may have on a worker; 0 when that is not known. A sequence has
// no more than its context, also where the whole cache would hold more: llama.cpp divides the cache among its slots.
func limitOf(w *pick.Worker) int64 {
	if w.MaxContext > 0 && w.KVTotal > 0 {
		return min(w.MaxContext, w.KVTotal)
	}
	return max(w.MaxContext, w.KVTotal)
}

// leave takes a visit out of the queue. When a place was found in the same moment, the place is used after all.
func (f *floor) leave(v *visit, refusal *openai.Error, now time.Time) (*attempt, *openai.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.item.Waiting() {
		f.pools[v.model].queue.Remove(&v.item, now)
		f.gaveUp(v, now)
		return nil, refusal
	}
	d := <-v.ready
	return d.attempt, d.refusal
}

func (f *floor) tooLate(v *visit, now time.Time) *openai.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.notLoaded(v, now); e != nil {
		return e
	}
	if v.late(now) {
		return openai.DeadlineUnmeetable("local")
	}
	return f.noRoom(v, f.pools[v.model], now)
}

// ack remembers the highest ticket of each parent: from now on the summary counts it.
func (f *floor) ack(t relay.Ticket) {
	if t.Parent == "" {
		return
	}
	old, ok := f.acks[t.Parent]
	if !ok && len(f.acks) >= maxAcks || ok && (old.Boot > t.Boot || old.Boot == t.Boot && old.Ticket >= t.N) {
		return
	}
	f.acks[t.Parent] = capacity.Ack{Parent: t.Parent, Boot: t.Boot, Ticket: t.N}
}
