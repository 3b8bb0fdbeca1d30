package local

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestShortPromptsTeachNothingAboutLongOnes: a prompt of ten tokens is counted as forty with its chat template, and one of a
// thousand is not believed to have four thousand for it. What longer prompts show is learned, and images are left out of it.
func TestShortPromptsTeachNothingAboutLongOnes(t *testing.T) {
	now := time.Unix(1000, 0)
	l, _ := labOfOne(t, now)
	ask := func(estimate int64, images, counted int) int64 {
		t.Helper()
		v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: estimate, Bytes: 4 * estimate}, now)
		v.visit.env.Images, v.visit.env.ImageTokens = min(images, 1), images
		a, refusal, waits := l.Enter(v, now)
		if !a.Is() {
			t.Fatalf("a request is not sent: %v, waits %v", refusal, waits)
		}
		l.Begin(a, func() {})
		now = now.Add(time.Second)
		l.FirstByte(a, now)
		l.End(a, openai.Usage{Stated: true, Prompt: counted, Completion: 1}, EndWhole, now, now)
		return v.visit.query.PromptTokens
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
		t.Errorf("200 tokens of text at twice their estimate beside an image of 800 are taken for %d", got)
	}
}
