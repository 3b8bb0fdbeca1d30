package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/pick"
)

// recorder measures the run.
type recorder struct {
	scenario       *Scenario
	result         *RunResult
	tenantStats    []Breakdown
	tenantServices []TenantService // by ended attempts, per tenant
	regionStats    []Breakdown
	warmUpTotals   runTotals // at the end of the warm-up
	lastSample     runTotals // at the last sample
	sentCount      int64
	goodCount      int64
	completedCount int64

	loop      *eventLoop
	topology  *topology
	network   *network
	requests  *requestTable
	baselines *baselineTier
	observer  *observer
}

func newRecorder(s *Scenario, result *RunResult) *recorder {
	rec := &recorder{scenario: s, result: result, tenantServices: make([]TenantService, len(s.Tenants)), tenantStats: newBreakdowns(s.Tenants), regionStats: make([]Breakdown, len(s.Fleet.Regions))}
	for i := range s.Fleet.Regions {
		rec.regionStats[i].Name = s.Fleet.Regions[i].Name
	}
	return rec
}

// runTotals are totals at one moment.
type runTotals struct {
	sent, completed, refused, good int64
	promptTokens, outputTokens     uint64
}

func newBreakdowns(names []string) []Breakdown {
	out := make([]Breakdown, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

// recordWindow records the totals at the start and end of the measured window.
func (rec *recorder) recordWindow(to int64) {
	if from := int64(rec.scenario.WarmUp); rec.loop.now < from && to >= from || from == 0 && rec.loop.now == 0 {
		rec.warmUpTotals = rec.currentTotals()
	}
	if until := int64(rec.scenario.Duration); rec.loop.now < until && to >= until {
		t := rec.currentTotals()
		rec.result.Window = rec.scenario.Duration - rec.scenario.WarmUp
		rec.result.PrefillRate = float64(t.promptTokens-rec.warmUpTotals.promptTokens) / rec.result.Window.Seconds()
		rec.result.OutputRate = float64(t.outputTokens-rec.warmUpTotals.outputTokens) / rec.result.Window.Seconds()
	}
}

// countsForDueSecond is the SecondCounts of the second in which a request was due.
func (rec *recorder) countsForDueSecond(x *simulatedRequest) *SecondCounts {
	n := int(x.dueAt / int64(time.Second))
	for len(rec.result.PerSecond) <= n {
		rec.result.PerSecond = append(rec.result.PerSecond, SecondCounts{})
	}
	return &rec.result.PerSecond[n]
}

// countRequest updates the counts of all requests, and those of the measured ones if the request is one.
func (rec *recorder) countRequest(x *simulatedRequest, add func(*RequestCounts)) {
	add(&rec.result.All)
	if !x.measured {
		return
	}
	add(&rec.result.Measured)
	if t := x.req.Tenant; int(t) < len(rec.tenantStats) && t >= 0 {
		add(&rec.tenantStats[t].Counts)
	}
	if p := x.req.Region; int(p) < len(rec.regionStats) && p >= 0 {
		add(&rec.regionStats[p].Counts)
	}
}

// recordCompletion records a completed request.
func (rec *recorder) recordCompletion(x *simulatedRequest) {
	rec.countRequest(x, func(c *RequestCounts) { c.Completed++ })
	rec.completedCount++
	q := x.req
	ttft := time.Duration(x.firstTokenAt+rec.network.responseDelay(x)-x.dueAt) + gpu.PerTokenTime
	back := rec.network.responseDelay(x)
	e2e := time.Duration(rec.loop.now+back-x.dueAt) + time.Duration(q.Output)*gpu.PerTokenTime
	var tpot time.Duration
	if q.Output > 1 {
		tpot = time.Duration(x.lastTokenAt-x.firstTokenAt)/time.Duration(q.Output-1) + gpu.PerTokenTime
	}
	o, slo := rec.result, &rec.scenario.SLO
	good := (slo.TTFT == 0 || ttft <= slo.TTFT) && (slo.TPOT == 0 || tpot <= slo.TPOT) && (slo.E2E == 0 || e2e <= slo.E2E)
	rec.observer.recordAnswer(x, ttft, tpot, e2e, good)
	if good {
		rec.goodCount++
		rec.countsForDueSecond(x).Good++
	}
	if !x.measured {
		return
	}
	if good {
		o.Good++
	}
	o.TTFT.addValue(ttft)
	o.E2E.addValue(e2e)
	o.QueueTime.addValue(time.Duration(x.placedAt - x.dueAt))
	if q.Output > 1 {
		o.TPOT.addValue(tpot)
	}
	o.PromptTokens += int64(q.PromptTokens)
	o.LongestPrompt = max(o.LongestPrompt, int64(q.PromptTokens))
	o.CachedTokens += int64(min(x.sequence.CachedTokens(), q.PromptTokens))
	o.OutputTokens += int64(q.Output)
	rec.addPredictedCached(x)
	for _, p := range [...]*Breakdown{breakdownAt(rec.tenantStats, q.Tenant), breakdownAt(rec.regionStats, q.Region)} {
		if p == nil {
			continue
		}
		p.TTFT.addValue(ttft)
		p.E2E.addValue(e2e)
		p.Tokens += int64(q.PromptTokens + q.Output)
		if q.Output > 1 {
			p.TPOT.addValue(tpot)
		}
		if good {
			p.Good++
		}
	}
}

func breakdownAt(list []Breakdown, n int32) *Breakdown {
	if n < 0 || int(n) >= len(list) {
		return nil
	}
	return &list[n]
}

// addPredictedCached adds the router's prediction of cached tokens; buildResult makes it a ratio.
func (rec *recorder) addPredictedCached(x *simulatedRequest) {
	rec.result.PredictedHitRate += float64(x.predictedCached)
}

func (rec *recorder) currentTotals() runTotals {
	for _, w := range rec.topology.workers {
		w.engine.SettleTo(rec.loop.currentTime())
	}
	t := runTotals{sent: rec.sentCount, completed: rec.completedCount, refused: rec.result.All.Refused, good: rec.goodCount}
	for _, w := range rec.topology.workers {
		c := w.totalCounters()
		t.promptTokens += c.PromptTokens
		t.outputTokens += c.GeneratedTokens
	}
	return t
}

// takeSample adds a sample to the series.
func (rec *recorder) takeSample() {
	t := rec.currentTotals()
	last := rec.lastSample
	s := FleetSample{
		At: time.Duration(rec.loop.now).Seconds(), Sent: t.sent - last.sent, Completed: t.completed - last.completed, Refused: t.refused - last.refused,
		Good: t.good - last.good, OutputTokens: t.outputTokens - last.outputTokens,
	}
	var used, all int
	for _, w := range rec.topology.workers {
		g := w.engine.Gauges()
		s.Running += g.Running
		s.EngineWaiting += g.Waiting
		used, all = used+g.KVUsed, all+g.KVBlocks
	}
	for _, a := range rec.topology.instances {
		s.Waiting += a.sim.countWaiting()
	}
	for _, p := range rec.baselines.balancers {
		s.Waiting += len(p.queue)
	}
	s.KVUsage = safeRatio(float64(used), float64(all))
	s.Tenants = rec.tenantServiceNow()
	rec.result.Series = append(rec.result.Series, s)
	rec.lastSample = t
	if rec.loop.now < int64(rec.scenario.Duration) || len(rec.requests.active) > 0 {
		rec.loop.addEvent(event{at: rec.loop.now + int64(rec.scenario.SampleInterval), kind: evTakeSample})
	}
}

// buildResult computes the result.
func (rec *recorder) buildResult() (*RunResult, error) {
	o := rec.result
	o.Seed, o.EndedAt = rec.scenario.Seed, time.Duration(rec.loop.now)
	if o.Policy = rec.policyName(); rec.baselines.rule == noBaseline {
		p, err := pick.ParsePolicy(o.Policy)
		if err != nil {
			return nil, err
		}
		o.Policy = p.String()
	}
	for _, x := range rec.requests.active {
		rec.observer.recordFailure(x, "unfinished", "")
		rec.countRequest(x, func(c *RequestCounts) { c.Unfinished++ })
	}
	for _, c := range []*RequestCounts{&o.All, &o.Measured} {
		if err := c.checkSums(); err != nil {
			return nil, err
		}
	}
	if o.All.Sent == 0 {
		return nil, fmt.Errorf("the workload had no request in the scenario's %v: nothing was measured; check its rate and its start", rec.scenario.Duration)
	}
	if o.Measured.Sent == 0 {
		return nil, fmt.Errorf("all %d requests were due in the warm-up of %v: nothing was measured; shorten it", o.All.Sent, rec.scenario.WarmUp)
	}
	o.Attainment = safeRatio(float64(o.Good), float64(o.Measured.Sent))
	o.Goodput = float64(o.Good) / o.Window.Seconds()
	o.HitRate = safeRatio(float64(o.CachedTokens), float64(o.PromptTokens))
	o.PredictedHitRate = safeRatio(o.PredictedHitRate, float64(o.PromptTokens))
	rec.summarizeWorkers()
	o.Tenants, o.Regions = rec.tenantStats, rec.regionStats
	for _, g := range rec.topology.gateways {
		o.Spills = append(o.Spills, g.spillsByPeer)
	}
	for _, p := range rec.baselines.balancers {
		o.Spills = append(o.Spills, p.spillsByPeer)
	}
	for _, row := range o.Spills {
		for _, n := range row {
			o.Spilled += n
		}
	}
	return o, nil
}

func (rec *recorder) policyName() string {
	if rec.scenario.Policy == "" && rec.scenario.Spec != nil {
		return rec.scenario.Spec.Routing.Policy
	}
	return rec.scenario.Policy
}

// summarizeWorkers fills in the result of each worker.
func (rec *recorder) summarizeWorkers() {
	var sum, most, micros float64
	for _, w := range rec.topology.workers {
		c := w.totalCounters()
		busy := time.Duration(w.busyTime).Seconds()
		rec.result.Workers = append(rec.result.Workers, WorkerResult{
			Region: w.zone.region.name, Zone: w.zone.name, Name: w.name, GPU: w.gpu, Requests: w.requestCount,
			PromptTokens: c.PromptTokens, CachedTokens: c.PrefixHits, OutputTokens: c.GeneratedTokens, BusySeconds: busy, Preemptions: c.Preemptions,
		})
		rec.result.KVTokens += int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
		sum, most = sum+busy, max(most, busy)
		micros += float64(w.costMicros)
	}
	rec.result.Imbalance = safeRatio(most*float64(len(rec.topology.workers)), sum)
	rec.result.Dollars = micros / 1e6 * rec.result.Window.Hours()
	rec.result.DollarsPerMillion = safeRatio(rec.result.Dollars*1e6, rec.result.OutputRate*rec.result.Window.Seconds())
}

// TenantService is what one tenant has been served by one time.
type TenantService struct {
	// PromptTokens computed for it and OutputTokens generated for it, since the start, in answers that have begun.
	PromptTokens int64 `json:"prompt_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Waiting are its requests in the zones' queues now.
	Waiting int `json:"waiting"`
}

// recordService adds the work of an ended attempt.
func (rec *recorder) recordService(x *simulatedRequest) {
	if n := x.req.Tenant; n >= 0 && int(n) < len(rec.tenantServices) {
		rec.tenantServices[n].addAttempt(x)
	}
}

// addAttempt adds the work of a request at its current worker.
func (s *TenantService) addAttempt(x *simulatedRequest) {
	if x.sequence == nil || x.sequence.GeneratedTokens() == 0 {
		return
	}
	s.PromptTokens += int64(max(x.req.PromptTokens+x.priorTokens-x.sequence.CachedTokens(), 0))
	s.OutputTokens += int64(x.sequence.GeneratedTokens())
}

// tenantServiceNow is what tenants have been served by now; nil for a single tenant.
func (rec *recorder) tenantServiceNow() []TenantService {
	if len(rec.tenantServices) < 2 {
		return nil
	}
	out := append([]TenantService(nil), rec.tenantServices...)
	for _, x := range rec.requests.active {
		n := x.req.Tenant
		if n < 0 || int(n) >= len(out) {
			continue
		}
		out[n].addAttempt(x)
		if x.zoneRequest != nil && x.worker == nil {
			out[n].Waiting++
		}
	}
	return out
}
