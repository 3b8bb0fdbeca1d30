package pick

import (
	"time"

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
	// KVTotal is the KV cache in tokens; 0 means that the engine does not say, and is not limited by it.
	KVTotal int64
	// Slots is the number of sequences the engine runs at once; 0 means that it does not say.
	Slots int64
	// MaxContext is the longest prompt plus output in tokens; 0 means that the engine does not say.
	MaxContext int64
}

// View is what one choice looks at. Workers is an immutable snapshot; Ledger and Index are the writer's own and
// are read, except for their scratch space. Make one with NewView.
type View struct {
	// Workers that serve the model, in any stable order.
	Workers []Worker
	// Ledger of what was dispatched.
	Ledger *Ledger
	// Index of cached prefixes; nil when prefixes are not looked at.
	Index *Index
	// Policy that decides.
	Policy Policy

	cursor uint32    // round robin's place
	perTop float64   // one over the greatest share of any worker that is up: shares count relative to it
	cands  []int32   // candidates of the current choice, as indices into Workers
	costs  []float64 // their costs in seconds or in the policy's own unit
	back   []float64 // prefill backlog of the candidates, in tokens
	cached []int32   // tokens of the prompt each worker has, by index into Workers
}

// NewView returns a view with scratch space for its workers.
func NewView(workers []Worker, ledger *Ledger, index *Index, policy Policy) *View {
	return &View{
		Workers: workers, Ledger: ledger, Index: index, Policy: policy,
		cands:  make([]int32, 0, len(workers)),
		costs:  make([]float64, len(workers)),
		back:   make([]float64, len(workers)),
		cached: make([]int32, len(workers)),
	}
}

// Resume takes over the place of an older view, so that replacing the snapshot does not restart round robin.
func (v *View) Resume(old *View) {
	if old != nil {
		v.cursor = old.cursor
	}
}

// Query is what one request asks of a worker.
type Query struct {
	// PromptTokens is the estimated or counted length of the prompt.
	PromptTokens int64
	// PromptBytes is the length in bytes of what Blocks were hashed from; it turns matched blocks into tokens.
	PromptBytes int64
	// OutputTokens is the expected length of the answer.
	OutputTokens int64
	// Class sets nothing by itself; it is named in the record.
	Class spec.Class
	// MaxWait is how long a worker's prefill backlog may be for it to count as having room. An idle worker always has.
	MaxWait time.Duration
	// Blocks are the prompt's chained block hashes (see Blocks); nil when prefixes do not matter.
	Blocks []uint64
	// Exclude are workers that already failed this request.
	Exclude []int32
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
}

// Reasons of a choice that found nobody.
const (
	ReasonNoWorker = "no_worker" // nobody serves the model now: waiting in the queue is of no use
	ReasonBusy     = "busy"      // somebody will have room
	ReasonTooLong  = "too_long"  // no worker could ever hold the request
)
