package health

import "fmt"

// State of a Breaker.
type State uint8

// The states.
const (
	Closed   State = iota // well: takes requests
	HalfOpen              // on trial: takes at most Trials requests at once
	Open                  // sick: takes none until its backoff has passed
	Warming               // is back and waits for its warm-up request: takes none
)

// String is the state's name in status and metrics.
func (s State) String() string {
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

// Takes says whether requests may be sent in this state.
func (s State) Takes() bool { return s == Closed || s == HalfOpen }
