package pick

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
