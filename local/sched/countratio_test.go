package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
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
