package health

import "fmt"

// BreakerState is the state of a Breaker.
type BreakerState uint8

// States of a breaker.
const (
	Closed   BreakerState = iota // healthy: takes requests
	HalfOpen                     // on trial: takes at most Trials requests at once
	Open                         // unhealthy: takes none until its backoff has passed
	Warming                      // reachable again, waiting for the answer to its warm-up request: takes none
)

// String is the state's name in status and metrics.
func (s BreakerState) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	case Warming:
		return "warming"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// AcceptsRequests reports whether requests may be sent in this state.
func (s BreakerState) AcceptsRequests() bool { return s == Closed || s == HalfOpen }
