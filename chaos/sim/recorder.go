package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
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
