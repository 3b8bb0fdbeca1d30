package local

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
)

// Headers in which clients of other routers name what they expect. They reach a local instance through its gateways as
// they came.
const (
	headerTTFT    = "X-Slo-Ttft-Ms"        // when the first token should come, in milliseconds from arrival
	headerTimeout = "X-Request-Timeout-Ms" // when the caller gives up, in milliseconds from arrival
)

// maxHeaderMS bounds such a time: a day.
const maxHeaderMS = 24 * 60 * 60 * 1000

// times reads when an answer is due and when it is of no use any more. A value that is no whole number of milliseconds
// is another router's convention and says nothing here.
func (v *visit) times(h http.Header, plain bool) {
	wait := v.hop.Deadline
	if plain {
		wait = milliseconds(h.Get(relay.HeaderClientDeadline))
	}
	for _, w := range [...]time.Duration{wait, milliseconds(h.Get(headerTimeout))} {
		if w > 0 && (v.deadline.IsZero() || v.arrived.Add(w).Before(v.deadline)) {
			v.deadline = v.arrived.Add(w)
		}
	}
	if w := milliseconds(h.Get(headerTTFT)); w > 0 {
		v.due = v.arrived.Add(w)
	}
}

func milliseconds(s string) time.Duration {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxHeaderMS {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}
