package sched

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// tenantFlow is one tenant's requests in a floodZone.
type tenantFlow struct {
	tenant         string
	class          spec.Class
	rate           float64 // requests/s
	from, until    time.Duration
	prompt, output load.LengthDist
	burst          int // requests that arrive at once; 0 means one
	seed           uint64

	source       load.ArrivalSource
	next         load.Arrival
	leftInBurst  int           // requests of the current burst
	due          time.Duration // of the next request
	sent         int
	ttft         []time.Duration // TTFT of its complete answers since the start of counting, in order of their end
	refused      int             // refused since then
	served       int             // answers that ended from then until its last request was due
	openRequests int             // requests that have not ended
}

// floodZone is a scheduler with its workers' engines in virtual time: a zone's decisions without its network.
type floodZone struct {
	t          *testing.T
	scheduler  *Scheduler
	startedAt  time.Time
	countFrom  time.Duration // requests count from then on
	workers    []*Worker
	engines    []*gpu.Engine
	flows      []*tenantFlow
	waiting    []*floodRequest
	ending     []*floodRequest // last token emitted, by end of the answer
	nextPatrol time.Time
	nextScrape time.Time
}

// floodRequest is a request in a floodZone.
type floodRequest struct {
	flow       *tenantFlow
	request    *Request
	attempt    *Attempt
	prompt     int
	output     int
	hashes     []uint64
	lastByteAt time.Time
	endsAt     time.Time
	settled    bool
	counted    bool
}

// maxDrainWait is how long the run waits for the last answers.
const maxDrainWait = time.Minute

const floodModel = "Llama-3.1-8B"

func newFloodZone(t *testing.T, kind string, n int, flows ...*tenantFlow) *floodZone {
	t.Helper()
	profile, err := gpu.LookupProfile(kind, floodModel, 0)
	if err != nil {
		t.Fatal(err)
	}
	z := &floodZone{t: t, startedAt: time.Now(), flows: flows, scheduler: newTestScheduler(nil, health.Config{})}
	z.scheduler.rng = rand.New(rand.NewPCG(flows[0].seed, 1))
	for i := range n {
		w, ok := z.scheduler.Registry.AddWorker(WorkerSpec{Name: string(rune('a' + i)), URL: "http://10.0.0.1:1", Models: []report.WorkerModel{{ID: floodModel}}, Weight: 1}, testBackend{}, z.startedAt)
		if !ok {
			t.Fatal("no room for a worker")
		}
		e, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(flows[0].seed, uint64(i))), Salt: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		z.workers, z.engines = append(z.workers, w), append(z.engines, e)
		w.breaker.RecordProbeSuccess(z.startedAt)
		w.breaker.RecordWarmUp(z.startedAt)
	}
	z.scrapeAll(z.startedAt)
	for _, fl := range flows {
		fl.source, err = load.NewPoissonSource(load.PoissonConfig{Rate: fl.rate, Prompt: fl.prompt, Output: fl.output, Groups: 8, PrefixTokens: 160, Seed: fl.seed})
		if err != nil {
			t.Fatal(err)
		}
		fl.drawNext()
	}
	return z
}

// drawNext draws the flow's next request. Those of a burst arrive together with its first.
func (fl *tenantFlow) drawNext() {
	fl.next, _ = fl.source.NextArrival() // the source is infinite
	if fl.leftInBurst--; fl.leftInBurst <= 0 {
		fl.leftInBurst, fl.due = max(fl.burst, 1), fl.from+fl.next.At
	}
}

// runFlows runs the flows until the first one's last request has ended. Call it in a synctest bubble.
func (z *floodZone) runFlows() {
	first := z.flows[0]
	for {
		now := time.Now()
		if at := now.Sub(z.startedAt); at >= first.until && first.openRequests == 0 || at >= first.until+maxDrainWait {
			return
		}
		next := z.startedAt.Add(max(first.until, now.Sub(z.startedAt)+time.Second))
		sooner := func(t time.Time) {
			if t.Before(next) {
				next = t
			}
		}
		for _, fl := range z.flows {
			if fl.due < fl.until {
				sooner(z.startedAt.Add(fl.due))
			}
		}
		for _, e := range z.engines {
			if at, ok := e.NextEvent(); ok {
				sooner(at)
			}
		}
		for _, r := range z.ending {
			sooner(r.endsAt)
		}
		sooner(z.nextPatrol)
		sooner(z.nextScrape)
		if len(z.waiting) > 0 {
			sooner(now.Add(PumpInterval))
		}
		time.Sleep(time.Until(next))
		z.advanceTo(time.Now())
	}
}

func (z *floodZone) advanceTo(now time.Time) {
	for _, fl := range z.flows {
		for fl.due < fl.until && !z.startedAt.Add(fl.due).After(now) {
			z.admitNext(fl, now)
			fl.drawNext()
		}
	}
	for _, e := range z.engines {
		if at, ok := e.NextEvent(); !ok || at.After(now) {
			continue
		}
		for _, s := range e.AdvanceTo(now) {
			r := s.Owner().(*floodRequest)
			r.lastByteAt = now
			if s.GeneratedTokens() == 1 {
				z.scheduler.RecordFirstByte(r.attempt, true, now)
			}
			if s.IsDone() {
				r.endsAt = now.Add(gpu.FinishTime)
				z.ending = append(z.ending, r)
				r.hashes = []uint64{uint64(s.CachedTokens())}
			}
		}
	}
	z.ending = slices.DeleteFunc(z.ending, func(r *floodRequest) bool {
		if r.endsAt.After(now) {
			return false
		}
		z.finishRequest(r, now)
		return true
	})
	if !now.Before(z.nextPatrol) {
		z.scheduler.CheckWorkers(now)
		z.nextPatrol = now.Add(PatrolInterval)
	}
	if !now.Before(z.nextScrape) {
		z.scrapeAll(now)
	}
	if len(z.waiting) > 0 {
		z.scheduler.Admission.ServeAllQueues(now)
	}
	z.collectResults(now)
}

// collectResults applies the scheduler's decisions on waiting requests, and removes those whose clients give up.
func (z *floodZone) collectResults(now time.Time) {
	z.takeSettled()
	z.waiting = slices.DeleteFunc(z.waiting, func(r *floodRequest) bool {
		if !r.settled {
			if !now.After(r.request.QueueItem.Deadline) {
				return false
			}
			z.scheduler.Admission.LeaveQueue(r.request, now)
			z.handleResult(r, nil, now)
			return true
		}
		z.handleResult(r, r.request.WaitResult.Attempt, now)
		return true
	})
}

// takeSettled marks the requests whose wait has ended.
func (z *floodZone) takeSettled() {
	for _, v := range z.scheduler.Admission.TakeSettled() {
		v.Owner.(*floodRequest).settled = true
	}
}

func (z *floodZone) handleResult(r *floodRequest, at *Attempt, now time.Time) {
	if at == nil {
		r.flow.openRequests--
		if r.counted {
			r.flow.refused++
		}
		return
	}
	z.sendToEngine(r, at, now)
}

func (z *floodZone) sendToEngine(r *floodRequest, at *Attempt, now time.Time) {
	r.attempt = at
	for i, w := range z.workers {
		if w == at.Worker {
			if _, err := z.engines[i].Submit(now, gpu.EngineRequest{PrefixHashes: r.hashes, PromptTokens: r.prompt, OutputTokens: r.output, Owner: r}); err != nil {
				z.t.Fatal(err)
			}
		}
	}
}

func (z *floodZone) admitNext(fl *tenantFlow, now time.Time) {
	a := &fl.next
	r := &floodRequest{flow: fl, prompt: a.PromptTokens(), output: a.Output, counted: fl.due >= z.countFrom}
	text := make([]byte, 4*r.prompt)
	at := 0
	for _, p := range a.Prompt {
		for b := range (p.Tokens + 1) / 2 {
			if off := at + 8*b; off+8 <= len(text) {
				binary.LittleEndian.PutUint64(text[off:], p.ID+uint64(b))
			}
		}
		at += 4 * p.Tokens
	}
	if len(a.Prompt) > 1 {
		for i := range a.Prompt[0].Tokens / gpu.BlockTokens {
			r.hashes = append(r.hashes, a.Prompt[0].ID+uint64(i))
		}
	}
	v := &Request{
		Owner: r, Tenant: fl.tenant, Model: floodModel, EstimatedTokens: int64(r.prompt), Class: fl.class, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}, Body: text,
	}
	v.Envelope.Stream, v.Envelope.Prompt, v.Envelope.MaxTokens, v.Envelope.N = true, text, r.output, 1
	r.request = v
	fl.sent++
	got, _, waits := z.scheduler.Admission.AdmitRequest(v, now)
	fl.openRequests++
	switch {
	case waits:
		z.waiting = append(z.waiting, r)
	default:
		z.handleResult(r, got, now)
	}
}

func (z *floodZone) finishRequest(r *floodRequest, now time.Time) {
	z.scheduler.FinishAttempt(r.attempt, &AttemptOutcome{
		Status: 200, IsEventStream: true, Evidence: EvidenceSuccess, Events: int64(r.output), LastByteAt: r.lastByteAt,
		Usage: openai.TokenUsage{Prompt: r.prompt, Completion: r.output, Cached: int(r.hashes[0]), Stated: true},
	}, now)
	r.flow.openRequests--
	if r.counted {
		r.flow.ttft = append(r.flow.ttft, r.attempt.firstByteAt.Sub(r.request.ArrivedAt))
	}
	if at := now.Sub(z.startedAt); at >= z.countFrom && at < r.flow.until {
		r.flow.served++
	}
}

func (z *floodZone) scrapeAll(now time.Time) {
	for i, w := range z.workers {
		g, c := z.engines[i].Gauges(), z.engines[i].Counters()
		z.scheduler.RecordScrape(w, report.Reading{
			ReadAt: now, LoadReadAt: now, Running: int64(g.Running), Waiting: int64(g.Waiting), KVUsage: g.KVUsage, KVReported: true,
			KVTotal: int64(g.KVBlocks) * gpu.BlockTokens, Slots: int64(z.engines[i].Limits().MaxSeqs),
			PromptTokens: float64(c.PromptTokens), OutputTokens: float64(c.GeneratedTokens), Preemptions: float64(c.Preemptions),
		}, w.modelsVersion, "", now)
	}
	z.nextScrape = now.Add(time.Second)
}

// runFloodZone runs the flows in a zone of n workers in virtual time.
func runFloodZone(t *testing.T, kind string, n int, count time.Duration, flows ...*tenantFlow) (z *floodZone) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		z = newFloodZone(t, kind, n, flows...)
		z.countFrom = count
		z.runFlows()
	})
	for _, fl := range flows {
		slices.Sort(fl.ttft)
	}
	return z
}
