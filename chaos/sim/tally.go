package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/pick"
)

// count books something of a request, among all, and among the measured ones when it is one.
func (r *run) count(x *ride, add func(*Counts)) {
	add(&r.out.All)
	if !x.measured {
		return
	}
	add(&r.out.Measured)
	if t := x.req.Tenant; int(t) < len(r.tenants) && t >= 0 {
		add(&r.tenants[t].Counts)
	}
	if p := x.req.Region; int(p) < len(r.places) && p >= 0 {
		add(&r.places[p].Counts)
	}
}

// complete measures a request that was answered.
func (r *run) complete(x *ride) {
	r.count(x, func(c *Counts) { c.Completed++ })
	r.done++
	q := x.req
	ttft := time.Duration(x.first+r.back(x)-x.due) + gpu.PerToken
	back := r.back(x)
	e2e := time.Duration(r.now+back-x.due) + time.Duration(q.Output)*gpu.PerToken
	var tpot time.Duration
	if q.Output > 1 {
		tpot = time.Duration(x.last-x.first)/time.Duration(q.Output-1) + gpu.PerToken
	}
	o, slo := r.out, &r.s.SLO
	good := (slo.TTFT == 0 || ttft <= slo.TTFT) && (slo.TPOT == 0 || tpot <= slo.TPOT) && (slo.E2E == 0 || e2e <= slo.E2E)
	if good {
		r.good++
		r.second(x).Good++
	}
	if !x.measured {
		return
	}
	if good {
		o.Good++
	}
	o.TTFT.add(ttft)
	o.E2E.add(e2e)
	o.Queued.add(time.Duration(x.placed - x.due))
	if q.Output > 1 {
		o.TPOT.add(tpot)
	}
	o.PromptTokens += int64(q.PromptTokens)
	o.LongestPrompt = max(o.LongestPrompt, int64(q.PromptTokens))
	o.CachedTokens += int64(min(x.seq.Cached(), q.PromptTokens))
	o.OutputTokens += int64(q.Output)
	r.believed(x)
	for _, p := range [...]*Part{part(r.tenants, q.Tenant), part(r.places, q.Region)} {
		if p == nil {
			continue
		}
		p.TTFT.add(ttft)
		p.E2E.add(e2e)
		p.Tokens += int64(q.PromptTokens + q.Output)
		if q.Output > 1 {
			p.TPOT.add(tpot)
		}
		if good {
			p.Good++
		}
	}
}

func part(list []Part, n int32) *Part {
	if n < 0 || int(n) >= len(list) {
		return nil
	}
	return &list[n]
}

// believed adds what the router thought was cached; it becomes a ratio in the end.
func (r *run) believed(x *ride) { r.out.Believed += float64(x.believed) }

func (r *run) tally() tally {
	for _, w := range r.workers {
		w.engine.Settle(r.time(r.now))
	}
	t := tally{sent: r.sent, done: r.done, refused: r.out.All.Refused, good: r.good}
	for _, w := range r.workers {
		c := w.counters()
		t.prompt += c.Prompt
		t.output += c.Generated
	}
	return t
}

// sample adds a point to the series.
func (r *run) sample() {
	t := r.tally()
	last := r.sampled
	s := Sample{
		At: time.Duration(r.now).Seconds(), Sent: t.sent - last.sent, Completed: t.done - last.done, Refused: t.refused - last.refused,
		Good: t.good - last.good, Output: t.output - last.output,
	}
	var used, all int
	for _, w := range r.workers {
		g := w.engine.Gauges()
		s.Running += g.Running
		s.EngineWaiting += g.Waiting
		used, all = used+g.KVUsed, all+g.KVBlocks
	}
	for _, a := range r.agents {
		s.Waiting += a.lab.Waiting()
	}
	for _, p := range r.pushers {
		s.Waiting += len(p.queue)
	}
	s.KV = ratio(float64(used), float64(all))
	s.Tenants = r.had()
	r.out.Series = append(r.out.Series, s)
	r.sampled = t
	if r.now < int64(r.s.Duration) || len(r.rides) > 0 {
		r.agenda.add(event{at: r.now + int64(r.s.Every), kind: evSample})
	}
}

// result sums up.
func (r *run) result() (*Result, error) {
	o := r.out
	o.Seed, o.Ended = r.s.Seed, time.Duration(r.now)
	if o.Policy = r.policy(); r.rival == noRival {
		p, err := pick.ParsePolicy(o.Policy)
		if err != nil {
			return nil, err
		}
		o.Policy = p.String()
	}
	for _, x := range r.rides {
		r.count(x, func(c *Counts) { c.Unfinished++ })
	}
	for _, c := range []*Counts{&o.All, &o.Measured} {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	if o.All.Sent == 0 {
		return nil, fmt.Errorf("the workload had no request in the scenario's %v: nothing was measured; check its rate and its start", r.s.Duration)
	}
	if o.Measured.Sent == 0 {
		return nil, fmt.Errorf("all %d requests were due in the warm-up of %v: nothing was measured; shorten it", o.All.Sent, r.s.WarmUp)
	}
	o.Attainment = ratio(float64(o.Good), float64(o.Measured.Sent))
	o.Goodput = float64(o.Good) / o.Window.Seconds()
	o.HitRate = ratio(float64(o.CachedTokens), float64(o.PromptTokens))
	o.Believed = ratio(o.Believed, float64(o.PromptTokens))
	r.sumWorkers()
	o.Tenants, o.Regions = r.tenants, r.places
	for _, g := range r.gateways {
		o.Spills = append(o.Spills, g.spills)
	}
	for _, p := range r.pushers {
		o.Spills = append(o.Spills, p.spills)
	}
	for _, row := range o.Spills {
		for _, n := range row {
			o.Spilled += n
		}
	}
	return o, nil
}

func (r *run) policy() string {
	if r.s.Policy == "" && r.s.Spec != nil {
		return r.s.Spec.Routing.Policy
	}
	return r.s.Policy
}

// sumWorkers says what each worker did.
func (r *run) sumWorkers() {
	var sum, most, micros float64
	for _, w := range r.workers {
		c := w.counters()
		busy := time.Duration(w.busy).Seconds()
		r.out.Workers = append(r.out.Workers, WorkerResult{
			Region: w.zone.region.name, Zone: w.zone.name, Name: w.name, GPU: w.gpu, Requests: w.sent,
			Prompt: c.Prompt, Cached: c.PrefixHits, Output: c.Generated, Busy: busy, Preemptions: c.Preemptions,
		})
		r.out.KVTokens += int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
		sum, most = sum+busy, max(most, busy)
		micros += float64(w.cost)
	}
	r.out.Imbalance = ratio(most*float64(len(r.workers)), sum)
	r.out.Dollars = micros / 1e6 * r.out.Window.Hours()
	r.out.PerMillion = ratio(r.out.Dollars*1e6, r.out.OutputRate*r.out.Window.Seconds())
}
