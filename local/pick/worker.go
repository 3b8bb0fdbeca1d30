package pick

import (
	"math"

	"github.com/cespare/xxhash/v2"

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
