package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// askAgain is how long a worker that refused the question for usage is not asked: its engine may be another by then.
const askAgain = time.Hour

// ask settles whether a worker is asked for the usage of a stream whose client did not. A gateway says when it wants that,
// and takes the answer out of the stream; behind a plain door both are ours.
func (v *visit) ask(o *orders, plain bool) {
	wanted := v.hop.AskUsage
	if plain {
		wanted = o.spec.Routing.AsksUsage()
	}
	v.asks = wanted && openai.Streams(v.r.URL.Path) && v.env.MayAskUsage()
}

// goes is the body as it goes on, but for the question for usage.
func (v *visit) goes() openai.Wording {
	w := openai.WordingOf(v.body)
	w.SetModel(&v.env, v.model)
	if v.capped > 0 {
		w.SetLimit(v.shape, &v.env, v.capped)
	}
	return w
}

// wording is the body that a worker is sent, and what the relay has to do about it.
func (a *Agent) wording(v *visit, w *worker) (openai.Wording, relay.Options) {
	body := v.goes()
	if !v.asks || time.Now().UnixNano()-w.refused.Load() < int64(askAgain) {
		return body, relay.Options{}
	}
	original := body
	body.AskUsage(&v.env)
	return body, relay.Options{
		HideUsage: a.cfg.Plain, Original: &original, Refused: func() { w.refused.Store(time.Now().UnixNano()) },
	}
}
