package gpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrFull is returned by Submit when the maximum number of requests wait.
var ErrFull = errors.New("the worker's queue is full")

// ErrTooLong is returned by Submit for a request that could never fit.
var ErrTooLong = errors.New("prompt and output are longer than the model's context")

// EngineConfig is what to simulate.
type EngineConfig struct {
	// Profile is the performance of the model on the GPU.
	Profile WorkerProfile
	// Limits bound batches, sequences and the queue. Zero fields take the engine's defaults.
	Limits EngineLimits
	// Rand adds noise to step times as on a real host. nil means exact step times.
	Rand *rand.Rand
	// Salt makes the hashes of this engine's private blocks differ from other engines'.
	Salt uint64
	// HostBlocks is the size of the host-memory cache for evicted blocks. 0: none.
	HostBlocks int
	// HostGBps is the load rate of each GPU from host memory, GB/s. Default 20.
	HostGBps float64
	// FastForward groups steps in which every sequence only generates its next token into one event, whose end equals
	// that of the single steps to the nanosecond. AdvanceTo then returns only sequences with their first token or
	// their end.
	FastForward bool
	// OnStep is called with the duration of each step with decodes and the number of sequences that got a further
	// token: the times between tokens. It may be nil.
	OnStep func(took time.Duration, decodes int)
}

// Engine simulates one continuously batching inference engine. It is not safe for concurrent use. Drive it by calling
// AdvanceTo at the times that NextEvent returns.
type Engine struct {
	profile       WorkerProfile
	limits        EngineLimits
	noise         stepNoise
	salt          uint64
	hostGBps      float64
	fastForward   bool
	onStep        func(time.Duration, int)
	cache         *blockPool
	arriving      []*Sequence // by ready time
	waiting       []*Sequence // first come, first served
	running       []*Sequence // oldest admission first
	emitted       []*Sequence // sequences that got a token in the last step; reused
	freeSequences []*Sequence // for reuse by Submit
	stepping      bool
	stepBegin     time.Time // of the current step or group
	stepEnd       time.Time
	group         stepGroup
	clock         time.Time // latest time passed in
	load          StepLoad
	slowdown      float64
	counters      Counters
	steps         uint64 // started since the engine was created
	submitted     uint64
}

// Counters are totals since the engine was created, in tokens unless named otherwise.
type Counters struct {
	PromptTokens    uint64 // prompts whose prefill finished
	GeneratedTokens uint64
	PrefixQueries   uint64
	PrefixHits      uint64
	HostHits        uint64 // of those, loaded from host memory
	Preemptions     uint64 // sequences
	Steps           uint64 // steps
}

// Gauges are an engine's current state.
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
		profile:     c.Profile,
		limits:      c.Limits.withDefaults(&c.Profile),
		noise:       newStepNoise(c.Rand),
		salt:        c.Salt,
		hostGBps:    c.HostGBps,
		fastForward: c.FastForward,
		onStep:      c.OnStep,
		cache:       newBlockPool(c.Profile.Blocks, c.HostBlocks),
		slowdown:    1,
	}, nil
}

// Limits returns the limits in force.
func (e *Engine) Limits() EngineLimits { return e.limits }

// Counters returns the totals.
func (e *Engine) Counters() Counters { return e.counters }

// Gauges returns the present state.
func (e *Engine) Gauges() Gauges {
	return Gauges{
		Running:  len(e.running),
		Waiting:  len(e.waiting) + len(e.arriving),
		KVBlocks: e.cache.gpuBlocks,
		KVUsed:   e.cache.usedBlocks,
		KVUsage:  float64(e.cache.usedBlocks) / float64(e.cache.gpuBlocks),
	}
}

// SetSlowdown multiplies later step times by a factor; 1 is normal.
func (e *Engine) SetSlowdown(factor float64) {
	e.truncateGroup(e.clock)
	e.slowdown = max(factor, 0.001)
}

// Submit submits a request at now. The errors wrap ErrTooLong, which is permanent, or ErrFull.
func (e *Engine) Submit(now time.Time, r EngineRequest) (*Sequence, error) {
	if r.PromptTokens < 1 || r.OutputTokens < 1 {
		return nil, fmt.Errorf("a request needs at least one prompt token and one output token, not %d and %d", r.PromptTokens, r.OutputTokens)
	}
	if n := r.PromptTokens + r.OutputTokens; n > e.limits.MaxModelLen {
		return nil, fmt.Errorf("%w: %d + %d tokens, at most %d", ErrTooLong, r.PromptTokens, r.OutputTokens, e.limits.MaxModelLen)
	}
	if len(e.waiting)+len(e.arriving) >= e.limits.MaxWaiting {
		return nil, fmt.Errorf("%w: %d requests wait", ErrFull, e.limits.MaxWaiting)
	}
	e.submitted++
	s := e.newSequence()
	s.request, s.arrivedAt, s.readyAt = r, now, now.Add(IngestTime)
	s.table.readRequest(&r, splitMix64(e.salt^splitMix64(e.submitted)))
	e.arriving = append(e.arriving, s)
	e.advanceClock(now)
	if len(e.waiting) == 0 {
		e.truncateGroup(s.readyAt)
	}
	return s, nil
}

// newSequence returns an empty sequence.
func (e *Engine) newSequence() *Sequence {
	n := len(e.freeSequences)
	if n == 0 {
		return &Sequence{}
	}
	s := e.freeSequences[n-1]
	e.freeSequences = e.freeSequences[:n-1]
	*s = Sequence{table: blockTable{spans: s.table.spans[:0]}}
	return s
}

// RecycleSequence lets a later Submit reuse the memory of a sequence that is done or canceled. The caller must drop
// it.
func (e *Engine) RecycleSequence(s *Sequence) {
	if s.state == stateDone || s.state == stateCancelled {
		e.freeSequences = append(e.freeSequences, s)
	}
}

// Cancel removes a sequence and frees its blocks at once; false when it had ended already. The current step is not
// shortened. With FastForward call SettleTo before it.
func (e *Engine) Cancel(s *Sequence) bool {
	if s.state == stateRunning || s.state == stateWaiting {
		e.truncateGroup(e.clock)
	}
	switch s.state {
	case stateArriving:
		e.arriving = removeSequence(e.arriving, s)
	case stateWaiting:
		e.waiting = removeSequence(e.waiting, s)
	case stateRunning:
		e.running = removeSequence(e.running, s)
		e.releaseBlocks(s)
	default:
		return false
	}
	s.state, s.scheduledTokens = stateCancelled, 0
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

// Restart drops every sequence, the cache and the totals, as a new process would.
func (e *Engine) Restart() {
	e.CancelAll()
	j := e.cache.journal
	e.cache, e.counters, e.stepping = newBlockPool(e.cache.gpuBlocks, e.cache.hostBlocks), Counters{}, false
	e.cache.journal = j
}

// NextEvent is the time of the next event; false when there is none until a Submit.
func (e *Engine) NextEvent() (time.Time, bool) {
	switch {
	case e.stepping:
		return e.stepEnd, true
	case len(e.waiting) > 0:
		return e.waiting[0].readyAt, true
	case len(e.arriving) > 0:
		return e.arriving[0].readyAt, true
	}
	return time.Time{}, false
}

// AdvanceTo ends the step that is due at now, if any, starts the next one if there is work, and returns the sequences
// that got a token. The slice is valid until the next call.
func (e *Engine) AdvanceTo(now time.Time) []*Sequence {
	e.emitted = e.emitted[:0]
	e.advanceClock(now)
	if e.stepping {
		if now.Before(e.stepEnd) {
			e.SettleTo(now)
			return nil
		}
		e.settleGroup()
		e.completeStep(now)
	}
	e.queueArrived(now)
	if e.scheduleStep() {
		e.startStep(now)
	}
	return e.emitted
}

// startStep starts a step, or a group of steps if no other event can occur between them.
func (e *Engine) startStep(now time.Time) {
	e.stepping, e.stepBegin = true, now
	e.stepEnd = now.Add(e.planSteps())
	for _, s := range e.running {
		if s.scheduledAt.IsZero() && s.scheduledTokens > 0 {
			s.scheduledAt = now
		}
	}
	if len(e.arriving) > 0 && len(e.waiting) == 0 {
		e.truncateGroup(e.arriving[0].readyAt)
	}
}

func (e *Engine) advanceClock(now time.Time) {
	if now.After(e.clock) {
		e.clock = now
	}
}

// queueArrived queues the requests that the API server has ingested.
func (e *Engine) queueArrived(now time.Time) {
	n := 0
	for n < len(e.arriving) && !e.arriving[n].readyAt.After(now) {
		e.arriving[n].state = stateWaiting
		n++
	}
	e.waiting = append(e.waiting, e.arriving[:n]...)
	e.arriving = slices.Delete(e.arriving, 0, n)
}

// completeStep applies the results of the current step.
func (e *Engine) completeStep(now time.Time) {
	e.stepping = false
	e.reportSteps(len(e.group.ends)-1, len(e.group.ends))
	e.counters.Steps++
	e.steps++
	ended := false
	for _, s := range e.running {
		if s.scheduledTokens == 0 {
			continue
		}
		decoded := s.isDecoding()
		s.computedTokens += s.scheduledTokens
		s.scheduledTokens = 0
		if !decoded || e.cache.journal != nil {
			e.cache.sealBlocks(&s.table, s.computedTokens/BlockTokens)
		}
		if s.uncomputedTokens() == 0 {
			e.emitToken(s, now)
			ended = ended || s.state == stateDone
		}
	}
	if ended {
		e.running = slices.DeleteFunc(e.running, func(s *Sequence) bool { return s.state == stateDone })
	}
}

func (e *Engine) emitToken(s *Sequence, now time.Time) {
	if s.generated == 0 {
		s.firstTokenAt = now
		e.counters.PromptTokens += uint64(s.request.PromptTokens)
	}
	s.generated++
	e.counters.GeneratedTokens++
	if s.generated >= s.request.OutputTokens {
		s.state, s.endedAt = stateDone, now
		e.releaseBlocks(s)
	}
	if !e.fastForward || s.generated == 1 || s.state == stateDone {
		e.emitted = append(e.emitted, s)
	}
}

// releaseBlocks releases the sequence's blocks. Their content stays in the prefix cache.
func (e *Engine) releaseBlocks(s *Sequence) {
	e.cache.sealBlocks(&s.table, s.computedTokens/BlockTokens)
	e.cache.dropTable(&s.table)
	s.computedTokens = 0
}

func removeSequence(list []*Sequence, s *Sequence) []*Sequence {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// EngineLimits bounds an engine. Zero fields take the engine's own defaults.
type EngineLimits struct {
	MaxBatchedTokens int // tokens in one step
	MaxSeqs          int // sequences that run at a time
	MaxModelLen      int // prompt plus output of one request, tokens
	MaxWaiting       int // requests that may wait
}

// withDefaults fills in the defaults of an engine's server for this hardware and model.
func (l EngineLimits) withDefaults(p *WorkerProfile) EngineLimits {
	tokens, seqs := 2048, 256
	if hw, ok := findHardware(canonicalGPU(p.GPU)); ok && hw.largeCard {
		tokens, seqs = 8192, 1024
	}
	length := 32768
	if a, ok := findModelArch(canonicalModel(p.Model)); ok {
		length = a.maxContext
	}
	l.MaxBatchedTokens = orDefault(l.MaxBatchedTokens, tokens)
	l.MaxSeqs = min(orDefault(l.MaxSeqs, seqs), l.MaxBatchedTokens)
	l.MaxModelLen = min(orDefault(l.MaxModelLen, length), p.KVTokens())
	l.MaxWaiting = orDefault(l.MaxWaiting, 4096)
	return l
}

func orDefault(v, def int) int {
	if v > 0 {
		return v
	}
	return def
}
