package sched

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// TestShortPromptsDoNotSkewTokenRatio: a prompt of ten tokens is counted as forty with its chat template. A prompt of
// a thousand is not estimated at four thousand because of that. The ratio is learned from longer prompts, without
// images.
func TestShortPromptsDoNotSkewTokenRatio(t *testing.T) {
	now := time.Unix(1000, 0)
	s, _ := newOneWorkerZone(t, now)
	ask := func(estimate int64, images, counted int) int64 {
		t.Helper()
		text := make([]byte, 4*estimate)
		v := &Request{Model: "m", Class: spec.Standard, EstimatedTokens: estimate, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}, Body: text}
		v.Envelope.Stream, v.Envelope.N, v.Envelope.Prompt, v.Query.Blocks = true, 1, text, []uint64{}
		v.Envelope.Images, v.Envelope.ImageTokens = min(images, 1), images
		at, refusal, waits := s.Admission.AdmitRequest(v, now)
		if at == nil {
			t.Fatalf("a request is not sent: %v, waits %v", refusal, waits)
		}
		now = now.Add(time.Second)
		s.RecordFirstByte(at, true, now)
		u := openai.TokenUsage{Stated: true, Prompt: counted, Completion: 1}
		s.FinishAttempt(at, &AttemptOutcome{Status: 200, IsEventStream: true, Evidence: EvidenceSuccess, Usage: u, Events: 1, LastByteAt: now}, now)
		return v.Query.PromptTokens
	}
	for range 20 {
		ask(10, 0, 40)
		ask(1000, 900, 4000)
	}
	if got := ask(1000, 0, 1000); got != 1000 {
		t.Errorf("after short prompts and images, one of 1,000 tokens is taken for %d", got)
	}
	for range 200 {
		ask(1000, 0, 2000)
	}
	if got := ask(1000, 0, 2000); got < 1900 || got > 2000 {
		t.Errorf("after prompts of twice their estimate, one of 1,000 is taken for %d", got)
	}
	if got := ask(1000, 800, 1200); got < 1150 || got > 1200 {
		t.Errorf("200 tokens of text at twice their estimate with an image of 800 are estimated at %d", got)
	}
}

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

// TestRepeatedPromptCountsForItsPrefixHolder: a prompt with most of its tokens cached counts toward the holder's own
// arrivals; any other prompt may go to any worker. An engine that never reports cached tokens is learned from at the
// first byte.
func TestRepeatedPromptCountsForItsPrefixHolder(t *testing.T) {
	now := time.Unix(1000, 0)
	s, w := newOneWorkerZone(t, now)
	ask := func(text []byte, took time.Duration) *Attempt {
		t.Helper()
		at := sendTestRequest(t, s, text, int64(len(text)/4), blockhash.AppendBlockHashes(nil, 1, text), now)
		now = now.Add(took)
		s.RecordFirstByte(at, true, now)
		return at
	}
	end := func(at *Attempt) {
		s.FinishAttempt(at, &AttemptOutcome{Status: 200, IsEventStream: true, Evidence: EvidenceSuccess, LastByteAt: now}, now)
		s.CheckWorkers(now)
	}
	text := bytes.Repeat([]byte("text"), 6000)
	end(ask(text, time.Second))
	ledger := w.viewSlots[0].group.view.Ledger
	if sent := ledger.SentCounts(w.ledgerID); sent.Prompts != 1 || sent.CachedPrompts != 0 {
		t.Errorf("after an uncached prompt: %+v", sent)
	}
	before, _, _ := w.learner.RelativePace()
	a := ask(text, time.Minute)
	if after, _, _ := w.learner.RelativePace(); after <= before {
		t.Errorf("an engine that does not report cached tokens took a minute, and its pace is %v, before it was %v", after, before)
	}
	end(a)
	if sent := ledger.SentCounts(w.ledgerID); sent.Prompts != 2 || sent.CachedPrompts != 1 {
		t.Errorf("after the same prompt again: %+v", sent)
	}
}

// TestPessimisticEstimateOfAnIdleWorkerDecays: a worker that was slow and gets no request is estimated as fast as its
// peers after two minutes. It gets one request at a time until it has answered. Without a measurable answer the
// probation ends by itself.
func TestPessimisticEstimateOfAnIdleWorkerDecays(t *testing.T) {
	now, f, ws, usual, view := newSlowWorkerZone(t)
	for range 480 { // two minutes
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		ws[2].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
	}
	if s, n := view(); s > 1.1 || n != 1 {
		t.Errorf("after two idle minutes it is estimated at %.2f of its prior, with %d at once", s, n)
	}
	for range 8 * 240 { // eight minutes, as with answers that are not streams and teach nothing
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
		if _, n := view(); n == 0 {
			break
		}
	}
	if s, n := view(); s > 1.1 || n != 0 {
		t.Errorf("minutes later it is estimated at %.2f of its prior, with %d at once", s, n)
	}
}

// TestSlowAnswerRestoresPessimisticEstimate: one answer as slow as before is enough.
func TestSlowAnswerRestoresPessimisticEstimate(t *testing.T) {
	now, f, ws, usual, view := newSlowWorkerZone(t)
	for range 480 {
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
	}
	ws[0].learner.LearnFirstToken(1000, 4*usual)
	ws[0].refreshViews(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Errorf("one slow answer later it is estimated at %.2f of its prior, with %d at once", s, n)
	}
}

// newSlowWorkerZone returns a zone of three workers, the first of which has learned rates of four times its prior.
func newSlowWorkerZone(t *testing.T) (now time.Time, f *Scheduler, ws []*Worker, usual float64, view func() (float64, int32)) {
	t.Helper()
	now = time.Unix(1e9, 0)
	f = newTestScheduler(nil, health.Config{})
	for _, name := range []string{"w1", "w2", "w3"} {
		w, ok := f.Registry.AddWorker(WorkerSpec{Name: name, URL: "http://10.0.0.1:1", Models: []report.WorkerModel{{ID: "m"}}, Weight: 1, GPU: "L4"}, testBackend{}, now)
		if !ok {
			t.Fatal("no room for a worker")
		}
		ws = append(ws, w)
	}
	prior := ws[0].prior.Rates
	usual = prior.PrefillBase + 1000/prior.PrefillRate
	for range 50 {
		ws[0].learner.LearnFirstToken(1000, 4*usual)
	}
	view = func() (seconds float64, trials int32) {
		for _, v := range f.groups["m"].view.Workers {
			if v.Name == "w1" {
				return (v.Rates.PrefillBase + 1000/v.Rates.PrefillRate) / usual, v.MaxTrials
			}
		}
		return 0, 0
	}
	ws[0].refreshViews(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Fatalf("it is estimated at %.2f of its prior, with %d at once", s, n)
	}
	return now, f, ws, usual, view
}
