package pick

import (
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Worker is what the chooser knows about one worker that serves the model.
type Worker struct {
	// ID is the worker's slot in the Ledger and in the Index.
	ID int32
	// Name is unique in the zone.
	Name string
	// Down says why the worker may not be chosen ("draining", "ejected", "loading"); empty when it may.
	Down string
	// Share of its usual speed that a recovering or new worker is trusted with, over 0 and up to 1. It counts relative
	// to the greatest in the view, so that a zone whose workers all start slowly is not throttled by that.
	Share float64
	// Trials bounds the requests at once while the worker is on trial after a failure; 0 means no such bound.
	Trials int32
	// Weight is the operator's weight, 1 when not given.
	Weight float64
	// Rates are the worker's learned rates.
	Rates Rates
	// Latency is what its first tokens have taken; nil means that nothing is known. It is read, never written.
	Latency *Latency
	// Later is how many prompts will wait for work that is put there: see Flow.Later.
	Later float64
	// GPU is the part of the time that its GPU was busy, as scraped, up to 1; 0 means that nobody says.
	GPU float64
	// Adapter says how near the model is when the model is an adapter.
	Adapter Adapter
	// KVTotal is the KV cache in tokens; 0 means that the engine does not say, and is not limited by it.
	KVTotal int64
	// Overcommit is how much of KVTotal may be promised, as a factor; 0 means 1.
	Overcommit float64
	// Slots is the number of sequences the engine runs at once; 0 means that it does not say.
	Slots int64
	// MaxContext is the longest prompt plus output in tokens; 0 means that the engine does not say.
	MaxContext int64
	// Pools are the pools that the worker is set apart for, as bits; 0 means none.
	Pools uint64

	key uint64 // hash of Name
}

// Adapter is how near a LoRA adapter is on one worker.
type Adapter uint8

// The states of an adapter.
const (
	AdapterNone Adapter = iota // the model is no adapter, or nobody says
	AdapterHeld                // in the GPU's memory now
	AdapterFree                // not there, and there is a free place for it
	AdapterFull                // not there, and another must go first
)

// Query is what one request asks of a worker.
type Query struct {
	// PromptTokens is the estimated or counted length of the prompt.
	PromptTokens int64
	// Longest is the longest prompt of a request that holds several, each a sequence of its own; 0 when it holds one.
	Longest int64
	// PromptBytes is the length in bytes of what Blocks were hashed from; it turns matched blocks into tokens.
	PromptBytes int64
	// OutputTokens is the expected length of the answer.
	OutputTokens int64
	// Class sets nothing by itself; it is named in the record.
	Class spec.Class
	// MaxWait is how long a worker's prefill backlog may be for it to count as having room. An idle worker always has.
	MaxWait time.Duration
	// Step is how far apart the answer's tokens may come; 0 for any. Workers on which they would come further apart are
	// left out while there is another. See step.go.
	Step time.Duration
	// Timed says that the request names when its first token must come: it takes KV cache that is there, and not what is
	// promised beyond it, for which an engine may have it wait.
	Timed bool
	// Steady says that the request rather waits than joins a batch too large for Step.
	Steady bool
	// Contended says that others wait as well: a worker then has room only while little waits inside it.
	Contended bool
	// Spare asks for a fifth of a worker's KV cache, and of Step, to stay free: whoever asks has its part of the zone already.
	Spare bool
	// Guest says that the request is beyond its tenant's part: it takes what others would not notice. See guest.go.
	Guest bool
	// Waited is how long it has waited in the queue.
	Waited time.Duration
	// Blocks are the prompt's chained block hashes (see Blocks); nil when prefixes do not matter.
	Blocks []uint64
	// Key is what consistent_hash goes by; 0 means that the request has none and may go anywhere.
	Key uint64
	// Exclude are workers that already failed this request.
	Exclude []int32
	// Pools are the pools whose workers may take the request, as bits; 0 means the workers of no pool.
	Pools uint64
	// Overflow lets workers of no pool take it as well while none of its pools has room.
	Overflow bool
}

// Verdict names the worker and why.
type Verdict struct {
	// Index into View.Workers; ID is the worker's ledger slot.
	Index int
	ID    int32
	// Reason is a stable word: the policy's own when a worker was chosen, otherwise why none was.
	Reason string
	// Seconds is the predicted time to first token.
	Seconds float64
	// Cached is the part of the prompt that the worker is believed to hold, in tokens.
	Cached int64
	// Known is the part of it that the index knows of; the rest is what such prompts have had cached beyond that.
	Known int64
	// Furthest says that nobody is known to hold more of the prompt, and Alone that nobody else holds as much.
	Furthest, Alone bool
}

// Reasons of a choice that found nobody.
const (
	ReasonNoWorker = "no_worker" // nobody serves the model now: waiting in the queue is of no use
	ReasonBusy     = "busy"      // somebody will have room
	ReasonTooLong  = "too_long"  // no worker could ever hold the request
	ReasonNoPool   = "no_pool"   // the model has workers, and none of them is for this request
)

// odd says that something is believed of the worker that cannot be: a number that is not one, or no speed at all.
func (w *Worker) odd() bool {
	r := &w.Rates
	sum := r.PrefillBase + r.PrefillRate + r.Attention + r.StepBase + r.StepSlope + r.StepContext + r.Trust + w.Share + w.Weight + w.GPU + w.Overcommit + w.Later
	return !(r.PrefillRate > 0) || !(1/r.PrefillRate < 1e6) || r.PrefillBase < 0 || r.StepBase < 0 || r.StepSlope < 0 || r.StepContext < 0 ||
		math.IsNaN(sum) || math.IsInf(sum, 0)
}

func (w *Worker) share() float64 {
	if !(w.Share > 0 && w.Share <= 1) {
		return 1
	}
	return w.Share
}

// standing is the worker's share while it is up.
func (w *Worker) standing() float64 {
	if w.Down != "" {
		return 0
	}
	return w.share()
}

func (w *Worker) weight() float64 {
	if !(w.Weight > 0) {
		return 1
	}
	return w.Weight
}

func (w *Worker) overcommit() float64 {
	if !(w.Overcommit > 0) {
		return 1
	}
	return min(w.Overcommit, MaxOvercommit)
}

func hashName(name string) uint64 { return xxhash.Sum64String(name) }
