package local

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

func stated(cached int) openai.Usage {
	return openai.Usage{Stated: true, Prompt: 6000, Completion: 1, Cached: cached}
}

// TestAMissIsNoSlowness: a prompt that was believed to be cached and was not takes as long as it takes, and its worker is as
// fast as before. One that was cached and took as long all the same says that the worker is slow, and so do those of which nobody
// says how much was cached: of clients that leave a slow worker, or of engines that are not asked.
func TestAMissIsNoSlowness(t *testing.T) {
	pace := func(usage openai.Usage, how LabEnd) (before, after float64) {
		now := time.Unix(1000, 0)
		l, w := labOfOne(t, now)
		text := bytes.Repeat([]byte("text"), 6000)
		prior := w.w.prior.Rates
		cold := time.Duration((prior.PrefillBase + 6000/prior.PrefillRate) * float64(time.Second))
		ask := func(usage openai.Usage, took time.Duration, how LabEnd) {
			t.Helper()
			v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: 6000, Bytes: int64(len(text)), Blocks: pick.Blocks(nil, 1, text)}, now)
			a, refusal, waits := l.Enter(v, now)
			if !a.Is() {
				t.Fatalf("a request is not sent: %v, waits %v", refusal, waits)
			}
			l.Begin(a, func() {})
			now = now.Add(took)
			l.FirstByte(a, now)
			now = now.Add(time.Second)
			l.End(a, usage, how, now, now)
			l.Patrol(now)
		}
		ask(stated(0), cold, EndWhole)
		for range 5 {
			ask(stated(5900), time.Duration(prior.PrefillBase*float64(time.Second)), EndWhole)
		}
		before, _, _ = w.w.learner.Pace()
		for range 20 {
			ask(usage, cold, how)
		}
		after, _, _ = w.w.learner.Pace()
		return before, after
	}
	if before, after := pace(stated(0), EndWhole); after > 1.2*before {
		t.Errorf("after 20 misses its usual prompt is believed to take %.2f of its prior, before it was %.2f", after, before)
	}
	for what, c := range map[string]struct {
		usage openai.Usage
		how   LabEnd
	}{"cached": {stated(5900), EndWhole}, "of nobody knows what": {openai.Usage{}, EndWhole}, "left": {openai.Usage{}, EndClientGone}} {
		if before, after := pace(c.usage, c.how); after < 2*before {
			t.Errorf("20 prompts (%s) took as long as whole ones, and its usual prompt is believed to take %.2f of its prior, before it was %.2f", what, after, before)
		}
	}
}
