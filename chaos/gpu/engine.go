package gpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrFull is returned by Submit when as many requests wait as may.
var ErrFull = errors.New("the worker's queue is full")

// ErrTooLong is returned by Submit for a request that could never fit.
var ErrTooLong = errors.New("prompt and output are longer than the model's context")

// EngineConfig says what to simulate.
type EngineConfig struct {
	// Profile is the pair of GPU and model.
	Profile Profile
	// Limits bound batches, sequences and the queue. Zero fields take the engine's defaults.
	Limits Limits
	// Rand makes step times vary as on a real host. Nil means exact step times.
	Rand *rand.Rand
	// Salt keeps the names of this engine's private blocks apart from other engines'.
	Salt uint64
}

// Engine simulates one continuously batching inference engine. It is not safe for concurrent use. Drive it by calling
// Advance at the times that Next names.
type Engine struct {
	profile  Profile
	limits   Limits
	rng      *rand.Rand
	salt     uint64
	pool     *pool
	arriving []*Sequence // by ready time
	waiting  []*Sequence // first come, first served
	running  []*Sequence // oldest admission first
	made     []*Sequence // sequences that got a token in the last step; reused
	stepping bool
	end      time.Time
	load     Load
	slowdown float64
	counters Counters
	created  uint64
}

// Counters are totals since the engine was made, in tokens unless named otherwise.
type Counters struct {
	Prompt        uint64 // prompts whose prefill finished
	Generated     uint64
	PrefixQueries uint64
	PrefixHits    uint64
	Preemptions   uint64 // sequences
	Steps         uint64 // steps
}

// Gauges are an engine's present state.
type Gauges struct {
	Running  int     // sequences that hold blocks
	Waiting  int     // requests that wait for room
	KVBlocks int     // blocks
	KVUsed   int     // blocks referenced by running sequences
	KVUsage  float64 // KVUsed / KVBlocks
}

// NewEngine returns an idle engine with an empty cache.
func NewEngine(c EngineConfig) (*Engine, error) {
	if c.Profile.Blocks < 1 || c.Profile.BaseMS <= 0 {
		return nil, fmt.Errorf("profile of %q on %q has no cache or no speed: take one from Lookup", c.Profile.Model, c.Profile.GPU)
	}
	return &Engine{
		profile:  c.Profile,
		limits:   c.Limits.withDefaults(&c.Profile),
		rng:      c.Rand,
		salt:     c.Salt,
		pool:     newPool(c.Profile.Blocks),
		slowdown: 1,
	}, nil
}

// Limits returns the limits in force.
func (e *Engine) Limits() Limits { return e.limits }

// Counters returns the totals.
func (e *Engine) Counters() Counters { return e.counters }

// Gauges returns the present state.
func (e *Engine) Gauges() Gauges {
	return Gauges{
		Running:  len(e.running),
		Waiting:  len(e.waiting) + len(e.arriving),
		KVBlocks: e.pool.total,
		KVUsed:   e.pool.used,
		KVUsage:  float64(e.pool.used) / float64(e.pool.total),
	}
}

// SetSlowdown makes every later step take this many times as long; 1 is normal.
func (e *Engine) SetSlowdown(factor float64) { e.slowdown = max(factor, 0.001) }

// Submit hands a request over at now. The errors wrap ErrTooLong, which no retry mends, or ErrFull.
func (e *Engine) Submit(now time.Time, r Request) (*Sequence, error) {
	if r.PromptTokens < 1 || r.OutputTokens < 1 {
		return nil, fmt.Errorf("a request needs at least one prompt token and one output token, not %d and %d", r.PromptTokens, r.OutputTokens)
	}
	if n := r.PromptTokens + r.OutputTokens; n > e.limits.MaxModelLen {
		return nil, fmt.Errorf("%w: %d + %d tokens, at most %d", ErrTooLong, r.PromptTokens, r.OutputTokens, e.limits.MaxModelLen)
	}
	if len(e.waiting)+len(e.arriving) >= e.limits.MaxWaiting {
		return nil, fmt.Errorf("%w: %d requests wait", ErrFull, e.limits.MaxWaiting)
	}
	e.created++
	if len(r.Prompt) > 0 {
		text := r.Prompt
		if r.Answer != 0 {
			text = append(slices.Clone(text), Piece{r.Answer, r.OutputTokens})
		}
		r.Prefix = Hashes(nil, text, BlockTokens)
	}
	s := &Sequence{req: r, key: mix(e.salt ^ mix(e.created)), arrived: now, ready: now.Add(Ingest)}
	e.arriving = append(e.arriving, s)
	return s, nil
}

// Cancel forgets a sequence and frees its blocks at once; false when it had ended already. The step under way is not
// shortened.
func (e *Engine) Cancel(s *Sequence) bool {
	switch s.state {
	case arriving:
		e.arriving = remove(e.arriving, s)
	case waiting:
		e.waiting = remove(e.waiting, s)
	case running:
		e.running = remove(e.running, s)
		e.drop(s)
	default:
		return false
	}
	s.state, s.scheduled = cancelled, 0
	return true
}

// CancelAll cancels every sequence and returns them.
func (e *Engine) CancelAll() []*Sequence {
	all := slices.Concat(e.running, e.waiting, e.arriving)
	for _, s := range all {
		e.Cancel(s)
	}
	return all
}

// Restart forgets every sequence, the cache and the totals, as a new process would.
func (e *Engine) Restart() {
	e.CancelAll()
	e.pool, e.counters, e.stepping = newPool(e.profile.Blocks), Counters{}, false
}

// Next returns when something happens next; false when nothing will until a Submit.
func (e *Engine) Next() (time.Time, bool) {
	switch {
	case e.stepping:
		return e.end, true
	case len(e.waiting) > 0:
		return e.waiting[0].ready, true
	case len(e.arriving) > 0:
		return e.arriving[0].ready, true
	}
	return time.Time{}, false
}

// Advance ends the step that is due at now, if any, starts the next one if there is work, and returns the sequences
// that got a token. The slice is good until the next call.
func (e *Engine) Advance(now time.Time) []*Sequence {
	e.made = e.made[:0]
	if e.stepping {
		if now.Before(e.end) {
			return nil
		}
		e.complete(now)
	}
	e.accept(now)
	if e.schedule() {
		e.stepping, e.end = true, now.Add(e.duration())
		e.stamp(now)
	}
	return e.made
}

// accept moves requests that the API server has taken in to the queue.
func (e *Engine) accept(now time.Time) {
	n := 0
	for n < len(e.arriving) && !e.arriving[n].ready.After(now) {
		e.arriving[n].state = waiting
		n++
	}
	e.waiting = append(e.waiting, e.arriving[:n]...)
	e.arriving = slices.Delete(e.arriving, 0, n)
}

func (e *Engine) stamp(now time.Time) {
	for _, s := range e.running {
		if s.begun.IsZero() && s.scheduled > 0 {
			s.begun = now
		}
	}
}

// complete books what the step under way has done.
func (e *Engine) complete(now time.Time) {
	e.stepping = false
	e.counters.Steps++
	for _, s := range e.running {
		if s.scheduled == 0 {
			continue
		}
		s.computed += s.scheduled
		s.scheduled = 0
		e.publish(s)
		if s.left() == 0 {
			e.token(s, now)
		}
	}
	e.running = slices.DeleteFunc(e.running, func(s *Sequence) bool { return s.state == done })
}

// publish makes the sequence's newly full blocks hit for others.
func (e *Engine) publish(s *Sequence) {
	for full := s.computed / BlockTokens; s.sealed < full; s.sealed++ {
		parent := uint64(0)
		if s.sealed > 0 {
			parent = s.hash(s.sealed - 1)
		}
		e.pool.seal(s.blocks[s.sealed], s.hash(s.sealed), parent, s.sealed > 0)
	}
}

func (e *Engine) token(s *Sequence, now time.Time) {
	if s.generated == 0 {
		s.first = now
		e.counters.Prompt += uint64(s.req.PromptTokens)
	}
	s.generated++
	e.counters.Generated++
	if s.generated >= s.req.OutputTokens {
		s.state, s.ended = done, now
		e.drop(s)
	}
	e.made = append(e.made, s)
}

// drop releases the sequence's blocks, the last first, so that a prompt's beginning outlives its end in the cache.
func (e *Engine) drop(s *Sequence) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		e.pool.release(s.blocks[i])
	}
	s.blocks, s.sealed, s.computed = s.blocks[:0], 0, 0
}

func remove(list []*Sequence, s *Sequence) []*Sequence {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
