package engine

import "time"

// Reading is what a worker's metrics said. The zero Reading is "nothing heard yet". What it points to is shared and
// never written again.
type Reading struct {
	// At is when the worker last answered.
	At time.Time
	// LoadAt is when it last told its load in numbers that can be; zero when it never did, as with engines that have no
	// metrics. Running, Waiting and KVUsage are as old as that.
	LoadAt time.Time
	// Running and Waiting sequences, summed over data-parallel engines.
	Running, Waiting int64
	// KVUsage is the part of the KV cache held by live sequences, 0..1. It counts only when KVSaid.
	KVUsage float64
	// KVSaid is whether the engine tells its KV usage at all.
	KVSaid bool
	// KVTotal is the KV cache in tokens; 0 when the engine does not say.
	KVTotal int64
	// Slots is how many sequences the engine runs at once; 0 when it does not say.
	Slots int64
	// PromptTokens, OutputTokens, PrefixQueries and PrefixHits count tokens since the engine started.
	PromptTokens, OutputTokens, PrefixQueries, PrefixHits float64
	// Served counts requests since the engine started; Preemptions counts sequences thrown out for lack of KV.
	Served, Preemptions float64
	// Asleep says that the engine has given its GPU memory back and must be woken.
	Asleep bool
	// Adapters that have requests now, sorted, and MaxAdapters that fit at once; 0 when the engine does not say.
	Adapters    []string
	MaxAdapters int64
	// Ignored counts values that were left out because they cannot be, since the worker was listed.
	Ignored int64
}

// KVUsed is the live part of the KV cache in tokens; -1 when the engine does not say.
func (r *Reading) KVUsed() int64 {
	if r.KVTotal <= 0 || !r.KVSaid {
		return -1
	}
	return int64(r.KVUsage * float64(r.KVTotal))
}

// Restarted says that the counters of next went back, so that the engine has started anew and its cache is empty.
func (r *Reading) Restarted(next *Reading) bool {
	return next.PromptTokens < r.PromptTokens || next.OutputTokens < r.OutputTokens || next.Served < r.Served
}
