package local

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/pick"
)

// TestTheSummaryTellsOfALateWorker: of a zone whose only worker has owed its first token for longer than it may take, the
// tiers above hear a longer wait and less headroom long before the silence counts as a stall.
func TestTheSummaryTellsOfALateWorker(t *testing.T) {
	now := time.Unix(1000, 0)
	l, w := labOfOne(t, now)
	look := func(at time.Time) (wait time.Duration, headroom int64) {
		l.Patrol(at)
		s := l.Summary(at)
		m := s.Model("m")
		if m == nil || m.Ready != 1 {
			t.Fatalf("%s after the request the zone has %+v, down: %q", at.Sub(now), m, l.Down(w))
		}
		wait, _ = m.Wait(spec.Standard)
		return wait, m.Headroom[spec.Standard]
	}
	idle, free := look(now)
	v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: 500, Bytes: 2000}, now)
	a, refusal, waits := l.Enter(v, now)
	if !a.Is() {
		t.Fatalf("the request is not sent: %v, waits %v", refusal, waits)
	}
	l.Begin(a, func() {})
	if wait, left := look(now.Add(3 * time.Second)); wait < idle+2*time.Second || left >= free {
		t.Errorf("after 3 s of silence the zone states a wait of %s and %d tokens/s of headroom; idle, %s and %d", wait, left, idle, free)
	}
	l.FirstByte(a, now.Add(4*time.Second))
	if wait, _ := look(now.Add(4 * time.Second)); wait > idle+100*time.Millisecond {
		t.Errorf("its first token is there, and the zone states a wait of %s", wait)
	}
}

// labOfOne is a zone of one idle worker.
func labOfOne(t *testing.T, now time.Time) (*Lab, *LabWorker) {
	t.Helper()
	l, err := NewLab(LabConfig{Region: "here", Zone: "a", Name: "here-a", Blank: make([]byte, 1<<16)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Add(discover.Worker{Name: "w", GPU: "H100"}, "m", 8192, now)
	if err != nil {
		t.Fatal(err)
	}
	l.Seat(now)
	page := engine.Reading{At: now, LoadAt: now, KVTotal: 400_000, Slots: 256}
	l.Scraped(w, &page, nil, now)
	return l, w
}

// TestChoicesHearOfFlowAndOfAnswersKept: what a worker was sent lately, and what answers have left in its cache, come to the
// view that choices are made from.
func TestChoicesHearOfFlowAndOfAnswersKept(t *testing.T) {
	now := time.Unix(1000, 0)
	l, w := labOfOne(t, now)
	text := make([]byte, 4000)
	for turn := range 12 { // a prompt, and then a longer one whose middle the engine has kept from the answer
		text = append(text, []byte(strings.Repeat(string(rune('a'+turn)), 1600))...)
		n := int64(len(text) / 4)
		v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: n, Bytes: int64(len(text)), Blocks: pick.Blocks(nil, 1, text)}, now)
		a, refusal, waits := l.Enter(v, now)
		if !a.Is() {
			t.Fatalf("turn %d is not sent: %v, waits %v", turn, refusal, waits)
		}
		l.Begin(a, func() {})
		now = now.Add(100 * time.Millisecond)
		l.FirstByte(a, now)
		u := openai.Usage{Stated: true, Prompt: int(n), Completion: 10}
		if turn > 0 {
			u.Cached = int(n) - 20
		}
		l.End(a, u, EndWhole, now, now.Add(100*time.Millisecond))
		now = now.Add(time.Second)
		l.Patrol(now)
	}
	p := w.w.seats[0].pool
	if later := p.view.Workers[w.w.seats[0].at].Later; !(later > 0.1 && later < 10) {
		t.Errorf("choices take %v prompts a second to come later, where one came every 1.1 s", later)
	}
	if part := p.view.Onward.Part(true); part < 0.5 {
		t.Errorf("choices expect %.2f of what follows the known to be cached, where nearly all was", part)
	}
}
