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
	// HostBlocks is how many blocks the host's memory takes of what leaves the GPU's. 0 is no such tier.
	HostBlocks int
	// HostGBps is how fast each GPU loads from there, GB/s. Default 20.
	HostGBps float64
	// FastForward takes steps together in which every sequence does nothing but make its next token: one event, whose end
	// is the same to the nanosecond as that of the single steps. Advance then names only the sequences that made their
	// first token or ended.
	FastForward bool
	// OnStep is told how long each step with decodes took, and how many sequences made a further token in it: the times
	// between tokens. It may be nil.
	OnStep func(took time.Duration, decodes int)
}

// Engine simulates one continuously batching inference engine. It is not safe for concurrent use. Drive it by calling
// Advance at the times that Next names.
type Engine struct {
	profile  Profile
	limits   Limits
	noise    noise
	salt     uint64
	hostGBps float64
	fast     bool
	onStep   func(time.Duration, int)
	pool     *pool
	arriving []*Sequence // by ready time
	waiting  []*Sequence // first come, first served
	running  []*Sequence // oldest admission first
	made     []*Sequence // sequences that got a token in the last step; reused
	spare    []*Sequence // for Submit to use again
	stepping bool
	begin    time.Time // of the step or stretch under way
	end      time.Time
	stretch  stretch
	clock    time.Time // latest time heard of
	load     Load
	slowdown float64
	counters Counters
	steps    uint64 // begun since the engine was made
	created  uint64
}

// Counters are totals since the engine was made, in tokens unless named otherwise.
type Counters struct {
	Prompt        uint64 // prompts whose prefill finished
	Generated     uint64
	PrefixQueries uint64
	PrefixHits    uint64
	HostHits      uint64 // of those, loaded from the host's memory
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
	if c.HostBlocks < 0 || c.HostGBps < 0 {
		return nil, fmt.Errorf("host tier of %d blocks at %v GB/s: use 0 or more", c.HostBlocks, c.HostGBps)
	}
	if c.HostGBps == 0 {
		c.HostGBps = 20
	}
	return &Engine{
		profile:  c.Profile,
		limits:   c.Limits.withDefaults(&c.Profile),
		noise:    newNoise(c.Rand),
		salt:     c.Salt,
		hostGBps: c.HostGBps,
		fast:     c.FastForward,
		onStep:   c.OnStep,
		pool:     newPool(c.Profile.Blocks, c.HostBlocks),
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
func (e *Engine) SetSlowdown(factor float64) {
	e.cut(e.clock)
	e.slowdown = max(factor, 0.001)
}

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
	s := e.sequence()
	s.req, s.arrived, s.ready = r, now, now.Add(Ingest)
	s.held.read(&r, mix(e.salt^mix(e.created)))
	e.arriving = append(e.arriving, s)
	e.heard(now)
	if len(e.waiting) == 0 {
		e.cut(s.ready)
	}
	return s, nil
}

// sequence returns an empty one.
func (e *Engine) sequence() *Sequence {
	n := len(e.spare)
	if n == 0 {
		return &Sequence{}
	}
	s := e.spare[n-1]
	e.spare = e.spare[:n-1]
	*s = Sequence{held: holding{parts: s.held.parts[:0]}}
	return s
}

// Reuse lets a later Submit take the memory of a sequence that is done or cancelled. The caller forgets it.
func (e *Engine) Reuse(s *Sequence) {
	if s.state == done || s.state == cancelled {
		e.spare = append(e.spare, s)
	}
}

// Cancel forgets a sequence and frees its blocks at once; false when it had ended already. The step under way is not
// shortened. Call Settle before it when fast-forwarding.
func (e *Engine) Cancel(s *Sequence) bool {
	if s.state == running || s.state == waiting {
		e.cut(e.clock)
	}
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
	j := e.pool.journal
	e.pool, e.counters, e.stepping = newPool(e.pool.total, e.pool.host), Counters{}, false
	e.pool.journal = j
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
	e.heard(now)
	if e.stepping {
		if now.Before(e.end) {
			e.Settle(now)
			return nil
		}
		e.settleAll()
		e.complete(now)
	}
	e.accept(now)
	if e.schedule() {
		e.start(now)
	}
	return e.made
}

// start begins a step, or a stretch of them where nothing else can come between.
func (e *Engine) start(now time.Time) {
	e.stepping, e.begin = true, now
	e.end = now.Add(e.plan())
	for _, s := range e.running {
		if s.begun.IsZero() && s.scheduled > 0 {
			s.begun = now
		}
	}
	if len(e.arriving) > 0 && len(e.waiting) == 0 {
		e.cut(e.arriving[0].ready)
	}
}

func (e *Engine) heard(now time.Time) {
	if now.After(e.clock) {
		e.clock = now
	}
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

// complete books what the step under way has done.
func (e *Engine) complete(now time.Time) {
	e.stepping = false
	e.tell(len(e.stretch.ends)-1, len(e.stretch.ends))
	e.counters.Steps++
	e.steps++
	ended := false
	for _, s := range e.running {
		if s.scheduled == 0 {
			continue
		}
		decoded := s.decoding()
		s.computed += s.scheduled
		s.scheduled = 0
		if !decoded || e.pool.journal != nil {
			e.pool.seal(&s.held, s.computed/BlockTokens)
		}
		if s.left() == 0 {
			e.token(s, now)
			ended = ended || s.state == done
		}
	}
	if ended {
		e.running = slices.DeleteFunc(e.running, func(s *Sequence) bool { return s.state == done })
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
	if !e.fast || s.generated == 1 || s.state == done {
		e.made = append(e.made, s)
	}
}

// drop gives the sequence's blocks back. What it has computed may hit again.
func (e *Engine) drop(s *Sequence) {
	e.pool.seal(&s.held, s.computed/BlockTokens)
	e.pool.drop(&s.held)
	s.computed = 0
}

func remove(list []*Sequence, s *Sequence) []*Sequence {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
