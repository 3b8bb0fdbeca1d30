package sched

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
	"github.com/spillway-lb/spillway/local/queue"
)

// testBackend is a worker whose engine is never called.
type testBackend struct{}

func (testBackend) EngineName() string { return "vllm" }

func (testBackend) LoadsModels() bool { return false }

func (testBackend) Sleeps() bool { return false }

func (testBackend) RequestScrape() {}

// newTestScheduler returns a zone without workers.
func newTestScheduler(s *spec.Spec, h health.Config) *Scheduler {
	return New(Config{Name: "a", Region: "r", Zone: "z", Policy: NewSchedulingPolicy(s, "", nil, 0), Rand: rand.New(rand.NewPCG(1, 2)), Health: h})
}

// TestPoolRequestIsOvertakenAtMostMaxOvertakesTimes: the pool's only worker is always full of small requests, of which a new one comes
// whenever one ends, and the workers of no pool are empty. The large request has its room after at most maxOvertakes of them.
func TestPoolRequestIsOvertakenAtMostMaxOvertakesTimes(t *testing.T) {
	now := time.Unix(1e9, 0)
	gold := map[string]string{"tier": "gold"}
	f := newTestScheduler(&spec.Spec{Pools: []spec.WorkerPool{{Name: "gold", Labels: gold, Tenants: []string{"acme"}}}}, health.Config{})
	for _, d := range []WorkerSpec{{Name: "gold", Labels: gold}, {Name: "shared"}} {
		d.URL, d.Models, d.Weight, d.GPU = "http://10.0.0.1:1", []report.WorkerModel{{ID: "m"}}, 1, "H100"
		w, ok := f.Registry.AddWorker(d, testBackend{}, now)
		if !ok {
			t.Fatal("no room for a worker")
		}
		w.breaker.RecordProbeSuccess(now)
		w.breaker.RecordWarmUp(now)
		w.reading.ReadAt, w.reading.KVTotal = now, 10_000
		w.refreshViews(now)
	}
	now = now.Add(time.Hour) // past the slow start
	ask := func(tokens int64) *Request {
		v := &Request{PathShape: openai.ShapeEmbeddings, Model: "m", EstimatedTokens: tokens, Class: spec.Batch, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}}
		v.Tenant = "acme"
		return v
	}
	var running []*Attempt
	for range 9 {
		at, refusal, waits := f.Admission.AdmitRequest(ask(1000), now)
		if at == nil {
			t.Fatalf("a small request found no room: %v, waits %v", refusal, waits)
		}
		f.ledger.RecordFirstByte(&at.ledgerEntry, now)
		running = append(running, at)
	}
	large := ask(8000)
	if at, refusal, _ := f.Admission.AdmitRequest(large, now); at != nil || refusal != nil {
		t.Fatalf("the large request did not wait: %v", refusal)
	}
	for step := range 10 * maxOvertakes {
		now = now.Add(time.Millisecond)
		v := ask(1000)
		if at, refusal, _ := f.Admission.AdmitRequest(v, now); at != nil {
			t.Fatal("it passed the queue")
		} else if refusal != nil {
			t.Fatal(refusal)
		}
		if len(running) > 0 {
			f.ledger.FinishRequest(&running[0].ledgerEntry, now)
			f.groups["m"].queue.SettleItem(&running[0].Request.QueueItem, 0)
			f.Admission.serveQueue(f.groups["m"], now)
			running = running[1:]
		}
		for _, v := range f.Admission.TakeSettled() {
			at := v.WaitResult.Attempt
			if v == large {
				if at == nil || at.Worker.Spec.Name != "gold" {
					t.Fatalf("the large request came to %+v", v.WaitResult.Refusal)
				}
				t.Logf("after %d requests of its own pool", step+1)
				return
			}
			f.ledger.RecordFirstByte(&at.ledgerEntry, now)
			running = append(running, at)
		}
	}
	t.Error("the large request was overtaken for ever")
}

// TestShareLimitsFollowVerdict: a tenant that runs more than its equal part leaves headroom, in a placement and in the
// explanation of one; requests of a less urgent class do so while a more urgent one runs.
func TestShareLimitsFollowVerdict(t *testing.T) {
	now := time.Unix(1e9, 0)
	f, _ := newBusyScheduler(t, now)
	p := f.groups["m"]
	enter := func(tenant string, c spec.Class, n int) {
		for range n {
			p.queue.RecordDirectEntry(&queue.Item[*Request]{Tenant: tenant, Class: c, Work: 100, Cost: 0.1}, now)
		}
	}
	enter("heavy", spec.Standard, 5)
	request := func(tenant string, c spec.Class) *Request {
		return &Request{Tenant: tenant, Model: "m", EstimatedTokens: 500, Class: c, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}}
	}
	for _, c := range []struct {
		what, tenant string
		class        spec.Class
		crowded      bool
		others       int // requests that another tenant starts before
		want         pick.ShareLimits
	}{
		{"alone", "heavy", spec.Standard, false, 0, pick.ShareLimits{}},
		{"alone, and others of its own wait", "heavy", spec.Standard, true, 0, pick.ShareLimits{Contended: true}},
		{"above its equal part, and no request waits", "heavy", spec.Standard, false, 1, pick.ShareLimits{Contended: true, ReserveHeadroom: true}},
		{"under its equal part", "light", spec.Standard, true, 0, pick.ShareLimits{}},
		{"less urgent than what runs", "light", spec.Batch, false, 0, pick.ShareLimits{Contended: true, ReserveHeadroom: true}},
	} {
		enter("light", spec.Standard, c.others)
		v := request(c.tenant, c.class)
		f.Admission.setShareLimits(v, p, c.crowded, now)
		if v.Query.Share != c.want {
			t.Errorf("%s: limits %+v, want %+v", c.what, v.Query.Share, c.want)
		}
		if c.crowded {
			continue
		}
		v = request(c.tenant, c.class)
		f.Reports.ExplainChoice(v, &explain.Explanation{}, now)
		if v.Query.Share != c.want {
			t.Errorf("%s: an explanation uses the limits %+v, a placement %+v", c.what, v.Query.Share, c.want)
		}
	}
}

func TestHashKeyKeepsRequestsTogether(t *testing.T) {
	request := func(tenant, text, prompt string) *Request {
		v := &Request{Model: "m", Tenant: tenant, AffinityText: text}
		v.Envelope.Prompt = []byte(prompt)
		return v
	}
	for _, c := range []struct {
		by   string
		a, b *Request
		same bool
	}{
		{"session", request("acme", "s1", "hello"), request("acme", "s1", "other"), true},
		{"session", request("acme", "s1", "hello"), request("acme", "s2", "hello"), false},
		{"session", request("acme", "s1", "hello"), request("zeta", "s1", "hello"), false},
		{"tenant", request("acme", "", "hello"), request("acme", "", "other"), true},
		{"tenant", request("acme", "", "hello"), request("zeta", "", "hello"), false},
		{"prefix", request("acme", "", "hello"), request("acme", "", "hello"), true},
		{"prefix", request("acme", "", "hello"), request("acme", "", "other"), false},
	} {
		o := NewSchedulingPolicy(&spec.Spec{Routing: spec.Routing{HashKey: c.by}}, "", nil, 0)
		if got := o.computeHashKey(c.a) == o.computeHashKey(c.b); got != c.same {
			t.Errorf("by %s: same key %v, want %v", c.by, got, c.same)
		}
		if again := NewSchedulingPolicy(o.Spec, "", nil, 0); again.computeHashKey(c.a) != o.computeHashKey(c.a) {
			t.Errorf("by %s: two instances compute different keys", c.by)
		}
	}
	if NewSchedulingPolicy(nil, "", nil, 0).computeHashKey(request("acme", "", "")) != 0 {
		t.Error("a request without any key source has a key")
	}
}

func TestAdapterStateFollowsTheReading(t *testing.T) {
	w := &Worker{models: []report.WorkerModel{{ID: "base"}, {ID: "sql", Parent: "base"}, {ID: "law", Parent: "base"}}}
	w.reading.Adapters = []string{"chat", "sql"}
	for _, c := range []struct {
		model string
		most  int64
		want  pick.AdapterState
	}{
		{"base", 4, pick.AdapterNone},
		{"sql", 4, pick.AdapterLoaded},
		{"law", 4, pick.AdapterSlotFree},
		{"law", 2, pick.AdapterSlotsFull},
		{"law", 0, pick.AdapterNone},
		{"absent", 4, pick.AdapterNone},
	} {
		w.reading.MaxAdapters = c.most
		if got := w.adapterState(c.model); got != c.want {
			t.Errorf("%s of %d places is %d, want %d", c.model, c.most, got, c.want)
		}
	}
}

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
