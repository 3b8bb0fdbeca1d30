package local

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// times reads when an answer is due, how fast it should come, and when it is of no use any more: what the gateway says is
// left, and what the client wrote.
func (v *visit) times(h http.Header) *openai.Error {
	t, e := relay.ReadTimes(h)
	if e != nil {
		return e
	}
	for _, w := range [...]time.Duration{v.hop.Deadline, t.Deadline} {
		if w > 0 && (v.deadline.IsZero() || v.arrived.Add(w).Before(v.deadline)) {
			v.deadline = v.arrived.Add(w)
		}
	}
	v.wants(t)
	return nil
}

// wants books when an answer should begin, and how fast it should come.
func (v *visit) wants(t relay.Times) {
	v.query.Step = t.Step
	if v.query.Timed = t.FirstToken > 0; v.query.Timed {
		v.due = v.arrived.Add(t.FirstToken)
	}
}
