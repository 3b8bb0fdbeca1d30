package sim

import "time"

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
