package local

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/scale"
)

// scaleEvery is how often desired replicas are reckoned.
const scaleEvery = time.Second

// scaler is what autoscalers are told of one model.
type scaler struct {
	meter   scale.Meter
	state   scale.State
	waits   scale.Waits
	fresh   average      // uncached part of prompts
	replica scale.Demand // what one replica did when one was last ready, in tokens/s
	out     scale.Output
	rate    scale.Demand
	trend   scale.Demand
	ready   int
}

// scaler returns a model's, or nil when there are too many. It is made for models that are served or declared only.
func (f *floor) scaler(model string) *scaler {
	if s := f.scalers[model]; s != nil {
		return s
	}
	if len(f.scalers) >= maxPools || f.pools[model] == nil && f.orders.spec.ModelNamed(model) == nil {
		return nil
	}
	s := new(scaler)
	f.scalers[model] = s
	return s
}

// offered counts a request as demand, whatever becomes of it: one that is refused for want of room was asked for all the
// same. A second try is no new demand.
func (f *floor) offered(v *visit, now time.Time) {
	if v.offered {
		return
	}
	v.offered = true
	s := f.scaler(v.model)
	if s == nil {
		return
	}
	prompt := max(v.query.PromptTokens, v.estimate)
	s.meter.Offer(scale.Demand{Prefill: float64(prompt) * s.fresh.or(1), Decode: float64(v.expected())}, now)
}

// placed learns from a request that found its worker.
func (f *floor) placed(v *visit, cached int64, now time.Time) {
	if s := f.scaler(v.model); s != nil {
		s.waits.Add(now.Sub(v.arrived), now)
		s.fresh.add(1 - min(float64(cached)/float64(max(v.query.PromptTokens, 1)), 1))
	}
}

// gaveUp counts the wait of a request that found none.
func (f *floor) gaveUp(v *visit, now time.Time) {
	if s := f.scaler(v.model); s != nil {
		s.waits.Add(now.Sub(v.arrived), now)
	}
}

// reckon works out what to ask for, for every model. Models of the spec count also while nobody serves them.
func (f *floor) reckon(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.reckoned) < scaleEvery && !now.Before(f.reckoned) {
		return
	}
	f.reckoned = now
	for name := range f.pools {
		f.scaler(name)
	}
	for i := range f.orders.spec.Models {
		f.scaler(f.orders.spec.Models[i].Name)
	}
	for name, s := range f.scalers {
		if f.pools[name] == nil && f.orders.spec.ModelNamed(name) == nil {
			delete(f.scalers, name)
			continue
		}
		f.reckonModel(name, s, now)
	}
}

func (f *floor) reckonModel(name string, s *scaler, now time.Time) {
	in := scale.Input{}
	s.rate, s.trend = s.meter.Rates(now)
	in.Rate, in.Trend = s.rate, s.trend
	if p := f.pools[name]; p != nil {
		var sum scale.Demand
		for i := range p.view.Workers {
			if v := &p.view.Workers[i]; v.Down == "" {
				in.Ready++
				sum.Prefill += v.Rates.PrefillRate
				sum.Decode += v.Rates.DecodeRate(decodeBatch)
			}
		}
		switch {
		case in.Ready > 0:
			s.replica = scale.Demand{Prefill: sum.Prefill / float64(in.Ready), Decode: sum.Decode / float64(in.Ready)}
		case s.replica.Prefill == 0 && len(p.workers) > 0: // nobody was ready yet: what such GPUs should do
			r := p.workers[0].prior.Rates
			s.replica = scale.Demand{Prefill: r.PrefillRate, Decode: r.DecodeRate(decodeBatch)}
		}
		in.Backlog = float64(p.queue.Work())
	}
	in.Replica, s.ready = s.replica, in.Ready
	s.out = scale.Decide(f.orders.scale(name), &in, &s.state, now)
}

// scale is how the spec wants a model's replicas reckoned.
func (o *orders) scale(model string) scale.Config {
	m := o.spec.ModelNamed(model)
	if m == nil {
		return scale.Config{Min: 1}
	}
	a := &m.Autoscaling
	return scale.Config{
		Target: a.Target, Min: max(a.Least(), m.WarmReplicas), Max: a.Max,
		Lead: time.Duration(a.ColdStart), Window: time.Duration(a.ScaleDownAfter),
	}
}

// adminAutoscaling answers GET /v1/autoscaling; an empty model means all.
func (a *Agent) adminAutoscaling(_ context.Context, model string) (*admin.AutoscalingAnswer, error) {
	now := time.Now()
	a.floor.reckon(now)
	out := &admin.AutoscalingAnswer{Node: a.path().String(), Models: a.floor.autoscaling(model, now)}
	if model != "" && len(out.Models) == 0 {
		return nil, &admin.Error{
			Status: http.StatusNotFound, Message: fmt.Sprintf("no model %.100q is served or declared here", model),
			Hint: "GET /v1/autoscaling lists those that are",
		}
	}
	return out, nil
}

func (f *floor) autoscaling(model string, now time.Time) []admin.AutoscalingModel {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []admin.AutoscalingModel{}
	for name, s := range f.scalers {
		if model == "" || model == name {
			out = append(out, f.describe(name, s, now))
		}
	}
	slices.SortFunc(out, func(x, y admin.AutoscalingModel) int { return strings.Compare(x.Model, y.Model) })
	return out
}

func (f *floor) describe(name string, s *scaler, now time.Time) admin.AutoscalingModel {
	c := f.orders.scale(name)
	m := admin.AutoscalingModel{
		Model: name, Desired: s.out.Desired, Needed: s.out.Needed, Ready: s.ready, Saturation: s.out.Use,
		Target: cmp.Or(c.Target, 0.7), LeadSeconds: cmp.Or(c.Lead, 2*time.Minute).Seconds(),
		Demand:   admin.TokenRates{Prefill: s.rate.Prefill, Decode: s.rate.Decode},
		Trend:    admin.TokenRates{Prefill: s.trend.Prefill, Decode: s.trend.Decode},
		Capacity: admin.TokenRates{Prefill: s.replica.Prefill, Decode: s.replica.Decode},
	}
	m.WaitP50, m.WaitP99 = s.waits.Quantiles(now)
	p := f.pools[name]
	if p == nil {
		return m
	}
	sum := f.summarize(p, now)
	m.Total, m.Warm, m.Cold, m.Waiting = int(sum.Total), int(sum.Warm), int(sum.Cold), p.queue.Len()
	m.Saturation = max(m.Saturation, p.queue.Saturation(now))
	wait, ok := sum.Wait(spec.Standard)
	if !ok {
		wait = f.outlookCold(name, now).Wait
	}
	m.PredictedWait = wait.Seconds()
	return m
}

// scaleMeters are the signals for autoscalers as metrics. Labels are bounded by the models there are.
type scaleMeters struct {
	agent                                                       *Agent
	desired, needed, use, demand, capacity, predicted, measured *prometheus.Desc
}

func newScaleMeters(a *Agent) *scaleMeters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, append([]string{"model"}, labels...), nil)
	}
	return &scaleMeters{
		agent:     a,
		desired:   desc("desired_replicas", "Replicas that the zone should have by this instance's demand, inside the spec's bounds."),
		needed:    desc("needed_replicas", "Replicas that this instance's share of the demand needs, before rounding and bounds: sum it over a zone's instances."),
		use:       desc("saturation_ratio", "Demand over the capacity of the ready replicas, or how full the queue is where that is more."),
		demand:    desc("demand_tokens_per_second", "Tokens that were asked for in the last half minute, refused requests included.", "kind"),
		capacity:  desc("replica_tokens_per_second", "Tokens that one replica does, learned.", "kind"),
		predicted: desc("predicted_wait_seconds", "Predicted queue wait of a new request of class standard, a load included."),
		measured:  desc("measured_wait_seconds", "Queue wait of the last minute's requests, by percentile.", "percentile"),
	}
}

// Describe lists the metrics.
func (m *scaleMeters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.desired, m.needed, m.use, m.demand, m.capacity, m.predicted, m.measured} {
		ch <- d
	}
}

// Collect reads them off the floor.
func (m *scaleMeters) Collect(ch chan<- prometheus.Metric) {
	say := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range m.agent.floor.autoscaling("", time.Now()) {
		say(m.desired, float64(s.Desired), s.Model)
		say(m.needed, s.Needed, s.Model)
		say(m.use, s.Saturation, s.Model)
		say(m.demand, s.Demand.Prefill, s.Model, "prefill")
		say(m.demand, s.Demand.Decode, s.Model, "decode")
		say(m.capacity, s.Capacity.Prefill, s.Model, "prefill")
		say(m.capacity, s.Capacity.Decode, s.Model, "decode")
		say(m.predicted, s.PredictedWait, s.Model)
		say(m.measured, s.WaitP50, s.Model, "50")
		say(m.measured, s.WaitP99, s.Model, "99")
	}
}
