package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/pick"
)

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
