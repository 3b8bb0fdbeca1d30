package local

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// TestPromptsAreTheirHomes: a prompt that has most cached where it goes is the worker's own, and one that has not is anybody's:
// whoever was sent none of those is reckoned with as many. An engine that never says what it had cached is learned from at the
// first byte.
func TestPromptsAreTheirHomes(t *testing.T) {
	now := time.Unix(1000, 0)
	l, w := labOfOne(t, now)
	ask := func(text []byte, took time.Duration) LabAttempt {
		t.Helper()
		v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: int64(len(text) / 4), Bytes: int64(len(text)), Blocks: pick.Blocks(nil, 1, text)}, now)
		a, refusal, waits := l.Enter(v, now)
		if !a.Is() {
			t.Fatalf("a request is not sent: %v, waits %v", refusal, waits)
		}
		l.Begin(a, func() {})
		now = now.Add(took)
		l.FirstByte(a, now)
		return a
	}
	end := func(a LabAttempt) {
		l.End(a, openai.Usage{}, EndWhole, now, now)
		l.Patrol(now)
	}
	text := bytes.Repeat([]byte("text"), 6000)
	end(ask(text, time.Second))
	ledger := w.w.seats[0].pool.view.Ledger
	if sent := ledger.Sent(w.w.id); sent.Prompts != 1 || sent.Homed != 0 {
		t.Errorf("after a prompt that nobody had: %+v", sent)
	}
	before, _, _ := w.w.learner.Pace()
	a := ask(text, time.Minute)
	if after, _, _ := w.w.learner.Pace(); after <= before {
		t.Errorf("an engine that says nothing of caches took a minute, and its pace is %v, before it was %v", after, before)
	}
	end(a)
	if sent := ledger.Sent(w.w.id); sent.Prompts != 2 || sent.Homed != 1 {
		t.Errorf("after the same prompt again: %+v", sent)
	}
}
