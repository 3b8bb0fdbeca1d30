package local

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// TestAMissIsNoSlowness: a prompt that was believed to be cached and was not takes as long as it takes, and its worker is as
// fast as before. One that was cached and took as long all the same says that the worker is slow.
func TestAMissIsNoSlowness(t *testing.T) {
	pace := func(cached bool) (before, after float64) {
		now := time.Unix(1000, 0)
		l, w := labOfOne(t, now)
		text := bytes.Repeat([]byte("text"), 6000)
		prior := w.w.prior.Rates
		cold := time.Duration((prior.PrefillBase + 6000/prior.PrefillRate) * float64(time.Second))
		ask := func(had int, took time.Duration) {
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
			l.End(a, openai.Usage{Stated: true, Prompt: 6000, Completion: 1, Cached: had}, EndWhole, now, now)
			l.Patrol(now)
		}
		ask(0, cold)
		for range 5 {
			ask(5900, time.Duration(prior.PrefillBase*float64(time.Second)))
		}
		before, _, _ = w.w.learner.Pace()
		for range 20 {
			had := 0
			if cached {
				had = 5900
			}
			ask(had, cold)
		}
		after, _, _ = w.w.learner.Pace()
		return before, after
	}
	if before, after := pace(false); after > 1.2*before {
		t.Errorf("after 20 misses its usual prompt is believed to take %.2f of its prior, before it was %.2f", after, before)
	}
	if before, after := pace(true); after < 2*before {
		t.Errorf("20 cached prompts took as long as whole ones, and its usual prompt is believed to take %.2f of its prior, before it was %.2f", after, before)
	}
}
