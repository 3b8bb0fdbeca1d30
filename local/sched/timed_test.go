package sched

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/blockhash"
)

func usageWithCached(cached int) openai.TokenUsage {
	return openai.TokenUsage{Stated: true, Prompt: 6000, Completion: 1, Cached: cached}
}

// TestCacheMissIsNotLearnedAsSlowness: a cache miss does not make its worker slower in the estimates. A prompt that was cached
// and took as long nevertheless does, and so do prompts without a count of cached tokens: those of clients that leave early, and
// of engines that do not report it.
func TestCacheMissIsNotLearnedAsSlowness(t *testing.T) {
	pace := func(usage openai.TokenUsage, left bool) (before, after float64) {
		now := time.Unix(1000, 0)
		s, w := newOneWorkerZone(t, now)
		text := bytes.Repeat([]byte("text"), 6000)
		prior := w.prior.Rates
		cold := time.Duration((prior.PrefillBase + 6000/prior.PrefillRate) * float64(time.Second))
		ask := func(usage openai.TokenUsage, took time.Duration, left bool) {
			t.Helper()
			at := sendTestRequest(t, s, text, 6000, blockhash.AppendBlockHashes(nil, 1, text), now)
			now = now.Add(took)
			s.RecordFirstByte(at, true, now)
			now = now.Add(time.Second)
			o := &AttemptOutcome{Status: 200, IsEventStream: true, Evidence: EvidenceSuccess, Usage: usage, Events: int64(usage.Completion), LastByteAt: now}
			if left {
				o.ClientGone, o.Failed, o.Evidence = true, true, NoEvidence
			}
			s.FinishAttempt(at, o, now)
			s.CheckWorkers(now)
		}
		ask(usageWithCached(0), cold, false)
		for range 5 {
			ask(usageWithCached(5900), time.Duration(prior.PrefillBase*float64(time.Second)), false)
		}
		before, _, _ = w.learner.RelativePace()
		for range 20 {
			ask(usage, cold, left)
		}
		after, _, _ = w.learner.RelativePace()
		return before, after
	}
	if before, after := pace(usageWithCached(0), false); after > 1.2*before {
		t.Errorf("after 20 misses its usual prompt is believed to take %.2f of its prior, before it was %.2f", after, before)
	}
	for what, c := range map[string]struct {
		usage openai.TokenUsage
		left  bool
	}{"cached": {usageWithCached(5900), false}, "of nobody knows what": {openai.TokenUsage{}, false}, "left": {openai.TokenUsage{}, true}} {
		if before, after := pace(c.usage, c.left); after < 2*before {
			t.Errorf("20 prompts (%s) took as long as whole ones, and its usual prompt is believed to take %.2f of its prior, before it was %.2f", what, after, before)
		}
	}
}
