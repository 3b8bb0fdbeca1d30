package sim

import "github.com/spillway-lb/spillway/local/sched"

// simulatedExchange is an attempt at a simulated worker.
type simulatedExchange struct {
	engines *workerTier
	request *simulatedRequest
}

// CancelAttempt ends the attempt before the next event.
func (e *simulatedExchange) CancelAttempt(sched.CancelReason) { e.engines.queueGivenUp(e.request) }

// IsBlockedByClient is false: simulated clients read at once.
func (*simulatedExchange) IsBlockedByClient() bool { return false }

// attemptEnd is how an attempt ended.
type attemptEnd uint8

const (
	endComplete       attemptEnd = iota // the answer passed whole
	endConnectionLost                   // the connection broke, or could not be made
	endGivenUp                          // the scheduler cancelled it
	endClientGone                       // the client left
	endOverloaded                       // the worker refused it because its own queue is full
	endTooLong                          // the worker refused it as longer than its context
)
