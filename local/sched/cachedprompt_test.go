package sched

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
)

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
