package sched

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/prefix"
)

// TestSummaryReportsLateWorker: when the only worker of a zone is overdue with its first token, the summary has a
// longer wait and less headroom long before the silence counts as a stall.
func TestSummaryReportsLateWorker(t *testing.T) {
	now := time.Unix(1000, 0)
	s, w := newOneWorkerZone(t, now)
	look := func(at time.Time) (wait time.Duration, headroom int64) {
		s.CheckWorkers(at)
		sum := s.Reports.BuildSummary(capacity.Path{}, at)
		m := sum.FindModel("m")
		if m == nil || m.Ready != 1 {
			t.Fatalf("%s after the request the zone has %+v, down: %q", at.Sub(now), m, w.DownReason())
		}
		wait, _ = m.PredictWait(spec.Standard)
		return wait, m.Headroom[spec.Standard]
	}
	idle, free := look(now)
	at := sendTestRequest(t, s, make([]byte, 2000), 500, nil, now)
	if wait, left := look(now.Add(3 * time.Second)); wait < idle+2*time.Second || left >= free {
		t.Errorf("after 3 s of silence the zone states a wait of %s and %d tokens/s of headroom; idle, %s and %d", wait, left, idle, free)
	}
	s.RecordFirstByte(at, true, now.Add(4*time.Second))
	if wait, _ := look(now.Add(4 * time.Second)); wait > idle+100*time.Millisecond {
		t.Errorf("after its first token the zone states a wait of %s", wait)
	}
}

// newOneWorkerZone returns a zone of one idle worker.
func newOneWorkerZone(t *testing.T, now time.Time) (*Scheduler, *Worker) {
	t.Helper()
	s := newTestScheduler(nil, health.Config{})
	s.prefixIndex = prefix.NewIndex(DefaultPrefixIndexBytes)
	w, ok := s.Registry.AddWorker(WorkerSpec{Name: "w", GPU: "H100", Models: []report.WorkerModel{{ID: "m", MaxContext: 8192}}}, testBackend{}, now)
	if !ok {
		t.Fatal("no room for a worker")
	}
	s.RecordScrape(w, report.Reading{ReadAt: now, LoadReadAt: now, KVTotal: 400_000, Slots: 256}, 0, "", now)
	s.RecordWarmUp(w, "", now)
	return s, w
}

// sendTestRequest sends a request of class standard, for which the zone has room.
func sendTestRequest(t *testing.T, s *Scheduler, text []byte, tokens int64, blocks []uint64, now time.Time) *Attempt {
	t.Helper()
	v := &Request{Model: "m", Class: spec.Standard, EstimatedTokens: tokens, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}, Body: text}
	v.Envelope.Stream, v.Envelope.N, v.Envelope.Prompt, v.Query.Blocks = true, 1, text, blocks
	at, refusal, waits := s.Admission.AdmitRequest(v, now)
	if at == nil {
		t.Fatalf("the request is not sent: %v, waits %v", refusal, waits)
	}
	return at
}

// TestViewsShowArrivalsAndCachedAnswers: recent arrivals at a worker, and the cached answers, reach the view from
// which workers are chosen.
func TestViewsShowArrivalsAndCachedAnswers(t *testing.T) {
	now := time.Unix(1000, 0)
	s, w := newOneWorkerZone(t, now)
	text := make([]byte, 4000)
	for turn := range 12 { // a prompt, then longer ones whose middle the engine has cached from the answers
		text = append(text, []byte(strings.Repeat(string(rune('a'+turn)), 1600))...)
		n := int64(len(text) / 4)
		at := sendTestRequest(t, s, text, n, blockhash.AppendBlockHashes(nil, 1, text), now)
		now = now.Add(100 * time.Millisecond)
		s.RecordFirstByte(at, true, now)
		u := openai.TokenUsage{Stated: true, Prompt: int(n), Completion: 10}
		if turn > 0 {
			u.Cached = int(n) - 20
		}
		s.FinishAttempt(at, &AttemptOutcome{Status: 200, IsEventStream: true, Evidence: EvidenceSuccess, Usage: u, Events: 10, LastByteAt: now}, now.Add(100*time.Millisecond))
		now = now.Add(time.Second)
		s.CheckWorkers(now)
	}
	p := w.viewSlots[0].group
	if later := p.view.Workers[w.viewSlots[0].index].QueueingFactor; !(later > 0.1 && later < 10) {
		t.Errorf("the view expects %v prompts a second, where one arrived every 1.1 s", later)
	}
	if part := p.view.SuffixHits.HitRate(true); part < 0.5 {
		t.Errorf("choices expect %.2f of what follows the known to be cached, where nearly all was", part)
	}
}
