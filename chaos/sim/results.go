package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/pick"
)

// countRequest updates the counts of all requests, and those of the measured ones if the request is one.
func (r *simulation) countRequest(x *simulatedRequest, add func(*RequestCounts)) {
	add(&r.result.All)
	if !x.measured {
		return
	}
	add(&r.result.Measured)
	if t := x.req.Tenant; int(t) < len(r.tenantStats) && t >= 0 {
		add(&r.tenantStats[t].Counts)
	}
	if p := x.req.Region; int(p) < len(r.regionStats) && p >= 0 {
		add(&r.regionStats[p].Counts)
	}
}

// recordCompletion records a completed request.
func (r *simulation) recordCompletion(x *simulatedRequest) {
	r.countRequest(x, func(c *RequestCounts) { c.Completed++ })
	r.completedCount++
	q := x.req
	ttft := time.Duration(x.firstTokenAt+r.responseDelay(x)-x.dueAt) + gpu.PerTokenTime
	back := r.responseDelay(x)
	e2e := time.Duration(r.now+back-x.dueAt) + time.Duration(q.Output)*gpu.PerTokenTime
	var tpot time.Duration
	if q.Output > 1 {
		tpot = time.Duration(x.lastTokenAt-x.firstTokenAt)/time.Duration(q.Output-1) + gpu.PerTokenTime
	}
	o, slo := r.result, &r.scenario.SLO
	good := (slo.TTFT == 0 || ttft <= slo.TTFT) && (slo.TPOT == 0 || tpot <= slo.TPOT) && (slo.E2E == 0 || e2e <= slo.E2E)
	if good {
		r.goodCount++
		r.countsForDueSecond(x).Good++
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
	r.addPredictedCached(x)
	for _, p := range [...]*Breakdown{breakdownAt(r.tenantStats, q.Tenant), breakdownAt(r.regionStats, q.Region)} {
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
func (r *simulation) addPredictedCached(x *simulatedRequest) {
	r.result.PredictedHitRate += float64(x.predictedCached)
}

func (r *simulation) currentTotals() runTotals {
	for _, w := range r.workers {
		w.engine.SettleTo(r.timeAt(r.now))
	}
	t := runTotals{sent: r.sentCount, completed: r.completedCount, refused: r.result.All.Refused, good: r.goodCount}
	for _, w := range r.workers {
		c := w.totalCounters()
		t.promptTokens += c.PromptTokens
		t.outputTokens += c.GeneratedTokens
	}
	return t
}

// takeSample adds a sample to the series.
func (r *simulation) takeSample() {
	t := r.currentTotals()
	last := r.lastSample
	s := FleetSample{
		At: time.Duration(r.now).Seconds(), Sent: t.sent - last.sent, Completed: t.completed - last.completed, Refused: t.refused - last.refused,
		Good: t.good - last.good, OutputTokens: t.outputTokens - last.outputTokens,
	}
	var used, all int
	for _, w := range r.workers {
		g := w.engine.Gauges()
		s.Running += g.Running
		s.EngineWaiting += g.Waiting
		used, all = used+g.KVUsed, all+g.KVBlocks
	}
	for _, a := range r.instances {
		s.Waiting += a.sim.countWaiting()
	}
	for _, p := range r.balancers {
		s.Waiting += len(p.queue)
	}
	s.KVUsage = safeRatio(float64(used), float64(all))
	s.Tenants = r.tenantServiceNow()
	r.result.Series = append(r.result.Series, s)
	r.lastSample = t
	if r.now < int64(r.scenario.Duration) || len(r.active) > 0 {
		r.events.addEvent(event{at: r.now + int64(r.scenario.SampleInterval), kind: evTakeSample})
	}
}

// buildResult computes the result.
func (r *simulation) buildResult() (*RunResult, error) {
	o := r.result
	o.Seed, o.EndedAt = r.scenario.Seed, time.Duration(r.now)
	if o.Policy = r.policyName(); r.baseline == noBaseline {
		p, err := pick.ParsePolicy(o.Policy)
		if err != nil {
			return nil, err
		}
		o.Policy = p.String()
	}
	for _, x := range r.active {
		r.countRequest(x, func(c *RequestCounts) { c.Unfinished++ })
	}
	for _, c := range []*RequestCounts{&o.All, &o.Measured} {
		if err := c.checkSums(); err != nil {
			return nil, err
		}
	}
	if o.All.Sent == 0 {
		return nil, fmt.Errorf("the workload had no request in the scenario's %v: nothing was measured; check its rate and its start", r.scenario.Duration)
	}
	if o.Measured.Sent == 0 {
		return nil, fmt.Errorf("all %d requests were due in the warm-up of %v: nothing was measured; shorten it", o.All.Sent, r.scenario.WarmUp)
	}
	o.Attainment = safeRatio(float64(o.Good), float64(o.Measured.Sent))
	o.Goodput = float64(o.Good) / o.Window.Seconds()
	o.HitRate = safeRatio(float64(o.CachedTokens), float64(o.PromptTokens))
	o.PredictedHitRate = safeRatio(o.PredictedHitRate, float64(o.PromptTokens))
	r.summarizeWorkers()
	o.Tenants, o.Regions = r.tenantStats, r.regionStats
	for _, g := range r.gateways {
		o.Spills = append(o.Spills, g.spillsByPeer)
	}
	for _, p := range r.balancers {
		o.Spills = append(o.Spills, p.spillsByPeer)
	}
	for _, row := range o.Spills {
		for _, n := range row {
			o.Spilled += n
		}
	}
	return o, nil
}

func (r *simulation) policyName() string {
	if r.scenario.Policy == "" && r.scenario.Spec != nil {
		return r.scenario.Spec.Routing.Policy
	}
	return r.scenario.Policy
}

// summarizeWorkers fills in the result of each worker.
func (r *simulation) summarizeWorkers() {
	var sum, most, micros float64
	for _, w := range r.workers {
		c := w.totalCounters()
		busy := time.Duration(w.busyTime).Seconds()
		r.result.Workers = append(r.result.Workers, WorkerResult{
			Region: w.zone.region.name, Zone: w.zone.name, Name: w.name, GPU: w.gpu, Requests: w.requestCount,
			PromptTokens: c.PromptTokens, CachedTokens: c.PrefixHits, OutputTokens: c.GeneratedTokens, BusySeconds: busy, Preemptions: c.Preemptions,
		})
		r.result.KVTokens += int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
		sum, most = sum+busy, max(most, busy)
		micros += float64(w.costMicros)
	}
	r.result.Imbalance = safeRatio(most*float64(len(r.workers)), sum)
	r.result.Dollars = micros / 1e6 * r.result.Window.Hours()
	r.result.DollarsPerMillion = safeRatio(r.result.Dollars*1e6, r.result.OutputRate*r.result.Window.Seconds())
}
