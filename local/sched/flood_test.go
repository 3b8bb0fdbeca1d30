package sched

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

var (
	chatPromptLengths = load.LengthDist{Median: 500, P90: 1500, Max: 4000}
	chatOutputLengths = load.LengthDist{Median: 60, P90: 120, Max: 200}
)

// floodMix is a light tenant's load together with one that floods.
type floodMix struct {
	name           string
	prompt, output load.LengthDist // of the flood
	class          spec.Class      // of the flood
	floodTenants   int             // tenants that flood
	floodDemand    float64         // their total demand, in multiples of a zone's capacity
	lightDemand    float64         // demand of the light tenant, in multiples of a zone's capacity
	burst          int
	maxP99Ratio    float64 // bound of the light tenant's p99 TTFT, as a multiple of its p99 alone
}

func (m floodMix) withDefaults() floodMix {
	if m.prompt.Median == 0 {
		m.prompt = chatPromptLengths
	}
	if m.output.Median == 0 {
		m.output = chatOutputLengths
	}
	m.floodTenants = max(m.floodTenants, 1)
	if m.floodDemand == 0 {
		m.floodDemand = 5
	}
	if m.lightDemand == 0 {
		m.lightDemand = 0.25
	}
	return m
}

// chatsPerSecond is the capacity of one worker in such chats per second, from chaos/experiment/compare.
var chatsPerSecond = map[string]float64{"L4": 3.06, "H100": 36.5}

const (
	floodWorkers    = 4
	floodStart      = 5 * time.Second
	countStart      = 10 * time.Second
	countedRequests = 600 // requests of the light tenant
)

// runOnce runs the light tenant alone and then with the flood. It returns the light tenant's times to first token in
// both, and the flood's answers per second.
func (m floodMix) runOnce(t *testing.T, kind string, seed uint64) (alone, flooded []time.Duration, served float64) {
	t.Helper()
	zone := chatsPerSecond[kind] * floodWorkers
	counted := time.Duration(countedRequests / (m.lightDemand * zone) * float64(time.Second))
	end := countStart + counted
	light := func() *tenantFlow {
		return &tenantFlow{tenant: "light", class: spec.Interactive, rate: m.lightDemand * zone, until: end, prompt: chatPromptLengths, output: chatOutputLengths, burst: m.burst, seed: seed}
	}
	by, next := light(), light()
	all := []*tenantFlow{next}
	for i := range m.floodTenants {
		all = append(all, &tenantFlow{
			tenant: fmt.Sprint("flood", i), class: m.class, rate: m.floodDemand * zone / float64(m.floodTenants), from: floodStart, until: end,
			prompt: m.prompt, output: m.output, seed: seed + 1000*uint64(i+1),
		})
	}
	runFloodZone(t, kind, floodWorkers, countStart, by)
	runFloodZone(t, kind, floodWorkers, countStart, all...)
	if by.refused+next.refused > 0 || len(next.ttft) != len(by.ttft) {
		t.Errorf("%s on %s, seed %d: %d of the light tenant's answered alone, %d in the flood", m.name, kind, seed, len(by.ttft), len(next.ttft))
	}
	for _, fl := range all[1:] {
		served += float64(fl.served) / counted.Seconds()
	}
	return by.ttft, next.ttft, served
}

// runSeeds runs a mix with several seeds. It returns the ratio of the light tenant's p99 in the flood to its p99
// alone, over all seeds.
func (m floodMix) runSeeds(t *testing.T, kind string, seeds int) float64 {
	t.Helper()
	var alone, flooded []time.Duration
	text, served := "", 0.0
	for seed := range uint64(seeds) {
		a, b, s := m.runOnce(t, kind, seed+1)
		text += fmt.Sprintf(" %.2f", p99Seconds(b)/p99Seconds(a))
		alone, flooded, served = append(alone, a...), append(flooded, b...), served+s/float64(seeds)
	}
	slices.Sort(alone)
	slices.Sort(flooded)
	r := p99Seconds(flooded) / p99Seconds(alone)
	t.Logf("%-5s %-30s p99 %.3f s alone, %.3f s in the flood: %.2f times (by seed%s); the flood had %.1f answers/s", kind, m.name, p99Seconds(alone), p99Seconds(flooded), r, text, served)
	return r
}

// p99Seconds is the p99 of an ascending list, in seconds.
func p99Seconds(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	return list[min(len(list)*99/100, len(list)-1)].Seconds()
}

// TestFloodBarelySlowsLightTenantOnEveryGPU: a tenant demands a quarter of a zone, which is half of its fair share,
// and another floods at ten times its own share. The p99 of the first tenant's TTFT is at most 1.2 times its p99
// alone, over 5 runs. Arrivals, engines and choices are drawn from the seed and time is virtual, so a busy machine
// changes nothing.
func TestFloodBarelySlowsLightTenantOnEveryGPU(t *testing.T) {
	for _, kind := range []string{"L4", "H100"} {
		if r := (floodMix{name: "chats"}).withDefaults().runSeeds(t, kind, 5); r > 1.2 {
			t.Errorf("on %s: %.2f times", kind, r)
		}
	}
}

// TestLightTenantUnderOtherFloods runs other floods and other light tenants. A bound over 1.2 means that 1.2 is not
// met: long prompts run through whole steps, very short ones make large batches, two floods are entitled to two
// thirds, and bursts meet every worker.
func TestLightTenantUnderOtherFloods(t *testing.T) {
	testkit.SoakOnly(t, "TestFloodBarelySlowsLightTenantOnEveryGPU")
	if testkit.RaceDetector {
		t.Skip("single goroutine; takes minutes under the race detector")
	}
	for _, m := range []floodMix{
		{name: "long answers", output: load.LengthDist{Median: 400, P90: 800, Max: 1600}, maxP99Ratio: 1.2},
		{name: "long prompts", prompt: load.LengthDist{Median: 3000, P90: 6000, Max: 12000}, maxP99Ratio: 2},
		{name: "short prompts", prompt: load.LengthDist{Median: 100, P90: 200, Max: 400}, maxP99Ratio: 3},
		{name: "batch class", class: spec.Batch, maxP99Ratio: 1.2},
		{name: "no more than the zone", floodDemand: 1, maxP99Ratio: 1.2},
		{name: "half more than the zone", floodDemand: 1.5, maxP99Ratio: 1.2},
		{name: "two floods", floodTenants: 2, maxP99Ratio: 4},
		{name: "light tenant in bursts of 8", burst: 8, maxP99Ratio: 2},
		{name: "light tenant of a twentieth", lightDemand: 0.05, maxP99Ratio: 1.2},
	} {
		if r := m.withDefaults().runSeeds(t, "H100", 2); r > m.maxP99Ratio {
			t.Errorf("%s: %.2f times, over %.1f", m.name, r, m.maxP99Ratio)
		}
	}
}

// TestExplainNamesTenantOverFairShare explains, in the middle of a flood, how requests of both tenants would be
// placed.
func TestExplainNamesTenantOverFairShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		light := &tenantFlow{tenant: "light", class: spec.Interactive, rate: 3, until: time.Minute, prompt: chatPromptLengths, output: chatOutputLengths, seed: 1}
		flood := &tenantFlow{tenant: "flood", class: spec.Interactive, rate: 60, until: time.Minute, prompt: chatPromptLengths, output: chatOutputLengths, seed: 2}
		z := newFloodZone(t, "L4", floodWorkers, light, flood)
		for time.Since(z.startedAt) < 8*time.Second {
			time.Sleep(10 * time.Millisecond)
			z.advanceTo(time.Now())
		}
		notes := func(tenant string) string {
			v := &Request{Tenant: tenant, Model: floodModel, EstimatedTokens: 500, Class: spec.Interactive, ArrivedAt: time.Now(), ExcludedWorkers: [2]int32{-1, -1}}
			var rec explain.Explanation
			z.scheduler.Reports.ExplainChoice(v, &rec, time.Now())
			return strings.Join(rec.Notes, "\n")
		}
		if got := notes("flood"); !strings.Contains(got, "tenant flood is above its fair share") {
			t.Errorf("notes for the flood:\n%s", got)
		}
		if got := notes("light"); strings.Contains(got, "more than its part") {
			t.Errorf("notes for the light tenant:\n%s", got)
		}
	})
}

// runOverload plays flows of chats in a zone of H100s for a minute, of which the first third is not counted.
func runOverload(t *testing.T, flows ...*tenantFlow) (counted time.Duration) {
	t.Helper()
	if testkit.RaceDetector {
		t.Skip("it has one goroutine and takes long under the race detector")
	}
	const from, until = 20 * time.Second, 60 * time.Second
	for i, fl := range flows {
		fl.tenant, fl.until, fl.prompt, fl.output, fl.seed = fl.class.String(), until, chatPromptLengths, chatOutputLengths, uint64(i+1)
		fl.rate *= chatsPerSecond["H100"] * floodWorkers
	}
	runFloodZone(t, "H100", floodWorkers, from, flows...)
	return until - from
}

// countWithin counts the times that are at most so long.
func countWithin(list []time.Duration, most time.Duration) (n int) {
	for _, d := range list {
		if d <= most {
			n++
		}
	}
	return n
}

// TestInteractiveKeepsItsTargetUnderBatchOverload: a zone is asked for twice what it can do, and interactive requests
// are less than what it can. They find it as if they were nearly alone, and what they leave is not wasted.
func TestInteractiveKeepsItsTargetUnderBatchOverload(t *testing.T) {
	soon, anyTime := &tenantFlow{class: spec.Interactive, rate: 1}, &tenantFlow{class: spec.Batch, rate: 1.5}
	counted := runOverload(t, soon, anyTime)
	sent := len(soon.ttft) + soon.refused
	if ok := countWithin(soon.ttft, time.Second); ok*100 < sent*99 {
		t.Errorf("%d of %d interactive requests had their first token within a second, %d were refused", ok, sent, soon.refused)
	}
	if rate := float64(soon.served+anyTime.served) / counted.Seconds(); rate < 0.9*chatsPerSecond["H100"]*floodWorkers {
		t.Errorf("the zone answers %.0f requests a second and can do %.0f: it is kept idle", rate, chatsPerSecond["H100"]*floodWorkers)
	}
	t.Logf("%d interactive within a second of %d; served %d and %d", countWithin(soon.ttft, time.Second), sent, soon.served, anyTime.served)
}

// TestMostRequestsAreOnTimeUnderOverload: who asks for half more than there is has nine tenths of what there is in time, and not
// everything late.
func TestMostRequestsAreOnTimeUnderOverload(t *testing.T) {
	all := &tenantFlow{class: spec.Interactive, rate: 2.1}
	counted := runOverload(t, all)
	rate := float64(countWithin(all.ttft, 1200*time.Millisecond)) / counted.Seconds()
	if rate < 0.9*chatsPerSecond["H100"]*floodWorkers {
		t.Errorf("%.0f answers a second began in time, and the zone can do %.0f", rate, chatsPerSecond["H100"]*floodWorkers)
	}
	t.Logf("%.0f in time a second, of %.0f that the zone can do; %d refused", rate, chatsPerSecond["H100"]*floodWorkers, all.refused)
}

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
