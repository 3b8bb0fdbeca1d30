package pick

import (
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// WorkerSnapshot is what a choice reads about one worker that serves the model.
type WorkerSnapshot struct {
	// ID is the worker's slot in the ledger and the index.
	ID int32
	// Name is unique in the zone.
	Name string
	// DownReason is why the worker may not be chosen ("draining", "ejected", "loading"); empty when it may.
	DownReason string
	// Share is the part of its usual speed that a recovering or new worker may use, over 0 and up to 1. It is relative
	// to the greatest in the view, so that a zone whose workers all start slowly is not throttled.
	Share float64
	// DrainPart is the part of requests, 0 to 1, that a drain under way keeps away while another worker may take them.
	// The number of running requests falls accordingly at once.
	DrainPart float64
	// MaxTrials bounds the concurrent requests while the worker is on probation after a failure; 0 means no such bound.
	MaxTrials int32
	// Weight is the operator's weight, 1 when not given.
	Weight float64
	// Rates are the worker's learned rates.
	Rates perfmodel.Rates
	// Latency is its measured times to first token; nil means no data. It is only read.
	Latency *perfmodel.FirstTokenLatency
	// QueueingFactor is how many later requests wait for work placed on it: see ArrivalStats.QueueingFactor.
	QueueingFactor float64
	// GPUBusy is the scraped part of the time that its GPU was busy, up to 1; 0 means not reported.
	GPUBusy float64
	// Adapter is where the model's LoRA adapter is, if the model is one.
	Adapter AdapterState
	// KVTotal is the KV cache in tokens; 0 means not reported, and no limit.
	KVTotal int64
	// Overcommit is the factor of KVTotal that may be reserved; 0 means 1.
	Overcommit float64
	// Slots is the number of sequences the engine runs at once; 0 means not reported.
	Slots int64
	// MaxContext is the longest prompt plus output in tokens; 0 means not reported.
	MaxContext int64
	// Pools are the pools that the worker is dedicated to, as bits; 0 means none.
	Pools uint64

	nameHash uint64 // hash of Name
}

// AdapterState is where a LoRA adapter is on one worker, best first.
type AdapterState uint8

// States of an adapter.
const (
	AdapterNone      AdapterState = iota // the model is no adapter, or the worker does not report it
	AdapterLoaded                        // in the GPU's memory now
	AdapterSlotFree                      // not in memory; a slot is free for it
	AdapterSlotsFull                     // not in memory; another adapter must be evicted first
)

// PlacementQuery is what one request needs of a worker.
type PlacementQuery struct {
	// PromptTokens is the estimated or counted length of the prompt.
	PromptTokens int64
	// LongestPrompt is the longest prompt of a request that holds several, each a sequence of its own; 0 when it holds one.
	LongestPrompt int64
	// PromptBytes is the length in bytes of what Blocks were hashed from; it turns matched blocks into tokens.
	PromptBytes int64
	// OutputTokens is the expected length of the answer.
	OutputTokens int64
	// Class has no effect on the choice; it is shown in the explanation.
	Class spec.Class
	// MaxWait is the maximum prefill backlog of a worker that counts as having room. An idle worker always has room.
	MaxWait time.Duration
	// TPOT is the requested time per output token; 0 means none. Workers that would exceed it are left out while there
	// is another. See filterByTPOT.
	TPOT time.Duration
	// HasTTFT is set if the request has a TTFT target. It then uses only KV cache that is free, and none that is
	// overcommitted, which an engine may let it wait for.
	HasTTFT bool
	// WaitForTPOT is set if the request waits rather than joins a batch too large for TPOT.
	WaitForTPOT bool
	// Contended is set while other requests wait as well: a worker then has room only while little waits inside it.
	Contended bool
	// ReserveHeadroom keeps a fifth of a worker's KV cache and of TPOT free: the tenant has its share of the zone already.
	ReserveHeadroom bool
	// OverShare is set if the request's tenant is above its fair share: it is admitted only where it hardly slows others
	// down. See filterOverShare.
	OverShare bool
	// Waited is how long it has waited in the queue.
	Waited time.Duration
	// Blocks are the prompt's chained block hashes (see AppendBlockHashes); nil when prefixes do not matter.
	Blocks []uint64
	// Key is the affinity key of consistent_hash; 0 means that the request has none and may go to any worker.
	Key uint64
	// Exclude are workers that already failed this request.
	Exclude []int32
	// Pools are the pools whose workers may take the request, as bits; 0 means the workers in no pool.
	Pools uint64
	// Overflow also allows workers in no pool while none of its pools has room.
	Overflow bool
}

// Choice is the chosen worker and the reason.
type Choice struct {
	// Index into WorkerView.Workers; ID is the worker's ledger slot.
	Index int
	ID    int32
	// Reason is a stable code: the policy's when a worker was chosen, otherwise why none was.
	Reason string
	// PredictedTTFT is the predicted time to first token, in seconds.
	PredictedTTFT float64
	// CachedTokens is the estimated part of the prompt that the worker has cached, in tokens.
	CachedTokens int64
	// KnownTokens is the part of it that is in the index; the rest is estimated by SuffixHitRate.
	KnownTokens int64
	// LongestHolder is set if no worker is known to hold more of the prompt, SoleHolder if no other holds as much.
	LongestHolder, SoleHolder bool
}

// Reasons of a choice without a worker.
const (
	ReasonNoWorker = "no_worker" // no worker serves the model now: waiting in the queue is of no use
	ReasonBusy     = "busy"      // some worker will have room
	ReasonTooLong  = "too_long"  // no worker could ever hold the request
	ReasonNoPool   = "no_pool"   // the model has workers, but none in the request's pools
)

// hasInvalidParams reports whether a learned parameter of the worker is invalid: NaN, infinite, negative, or a prefill
// rate of zero.
func (w *WorkerSnapshot) hasInvalidParams() bool {
	rest := w.Share + w.Weight + w.GPUBusy + w.Overcommit + w.QueueingFactor
	return !w.Rates.IsValid() || math.IsNaN(rest) || math.IsInf(rest, 0)
}

func (w *WorkerSnapshot) shareOrDefault() float64 {
	if !(w.Share > 0 && w.Share <= 1) {
		return 1
	}
	return w.Share
}

// shareIfUp is the worker's share while it is up.
func (w *WorkerSnapshot) shareIfUp() float64 {
	if w.DownReason != "" {
		return 0
	}
	return w.shareOrDefault()
}

func (w *WorkerSnapshot) weightOrDefault() float64 {
	if !(w.Weight > 0) {
		return 1
	}
	return w.Weight
}

func (w *WorkerSnapshot) overcommitFactor() float64 {
	if !(w.Overcommit > 0) {
		return 1
	}
	return min(w.Overcommit, perfmodel.MaxOvercommit)
}

func hashName(name string) uint64 { return xxhash.Sum64String(name) }
