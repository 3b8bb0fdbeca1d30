package inflight

import "time"

// Behavioural constants of the ledger.

const (
	// maxHeadCredit is the maximum part of the oldest prefill that the clock alone counts as done. At 1, a worker that
	// hangs would look idle; without any credit, agents on mixed GPUs lose 6.4 % of goodput (simulator, pick/DESIGN.md).
	maxHeadCredit = 0.95

	// A first token is late after lateFactor times its predicted time plus lateGrace, which covers scheduling in the
	// engine. Twice the prediction is beyond the spread of healthy workers. A smaller factor avoids workers for
	// prediction errors; a larger one sends more requests to a worker that hangs.
	lateFactor = 2.0
	lateGrace  = 0.05 // seconds

	// stallWindow is the decay time of recent prefills in seconds: a few prompts of a busy worker. maxStalledPart
	// bounds the part of a worker's time that prefills are estimated to take, so that a predicted step stays finite.
	stallWindow    = 2.0
	maxStalledPart = 0.9

	// longDivisor: a request is long if it needs over 1/longDivisor of its worker's KV cache. Four such requests fill
	// it, so short ones find room only when one of them ends.
	longDivisor = 4

	// maxFreeBlockLists bounds the slices of finished entries that are kept for reuse: 1.3 KB each at most.
	maxFreeBlockLists = 1024

	// changeLogLength is how many changes of workers' loads the ledger remembers for readers that keep summaries of them:
	// those of some hundred requests. A reader that is further behind recomputes all of its workers, 1 us for each 50.
	changeLogLength = 1024

	// maxClockBackstep is how far time may appear to go back, in nanoseconds, because callers read the clock before
	// they waited for their turn. More is a wall clock that was set back.
	maxClockBackstep = int64(time.Second)
)
