package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// askAgain is how long a worker that refused the question for usage is not asked: its engine may be another by then.
const askAgain = time.Hour

// asks writes the body that asks for the usage of a stream whose client did not. A gateway says when it wants that, and
// takes the answer out of the stream; behind a plain door both are ours.
func (v *visit) asks(o *orders, plain bool) {
	wanted := v.hop.AskUsage
	if plain {
		wanted = o.spec.Routing.AsksUsage()
	}
	if wanted && openai.Streams(v.r.URL.Path) && v.env.MayAskUsage() {
		env := v.env
		v.asking = openai.WithUsage(v.body, &env)
	}
}

// wording is the body that a worker is sent, and what the relay has to do about it.
func (a *Agent) wording(v *visit, w *worker) ([]byte, relay.Options) {
	if v.asking == nil || time.Now().UnixNano()-w.refused.Load() < int64(askAgain) {
		return v.body, relay.Options{}
	}
	return v.asking, relay.Options{
		HideUsage: a.cfg.Plain, Original: v.body, Refused: func() { w.refused.Store(time.Now().UnixNano()) },
	}
}
