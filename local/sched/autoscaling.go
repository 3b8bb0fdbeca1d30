package sched

import (
	"time"

	"github.com/spillway-lb/spillway/local/autoscale"
)

// Autoscaling computes how many replicas each model needs.
type Autoscaling struct {
	*zoneState
	autoscalers map[string]*modelAutoscaler
	// autoscaledAt is when desired replicas were last computed.
	autoscaledAt time.Time
}

// modelAutoscaler computes the replica recommendation of one model.
type modelAutoscaler struct {
	demandMeter    autoscale.DemandMeter
	state          autoscale.ReplicaWindow
	waits          autoscale.QueueWaits
	uncachedShare  movingAverage         // uncached share of prompts
	replicaRate    autoscale.TokenDemand // throughput of one replica when one was last ready, in tokens/s
	recommendation autoscale.Recommendation
	demandRate     autoscale.TokenDemand
	demandTrend    autoscale.TokenDemand
	readyReplicas  int
}

// autoscaleInterval is how often desired replicas are computed.
const autoscaleInterval = time.Second

// autoscalerFor returns the autoscaler of a model, or nil when there are too many. It creates one only for a model that is
// served or declared.
func (a *Autoscaling) autoscalerFor(model string) *modelAutoscaler {
	if s := a.autoscalers[model]; s != nil {
		return s
	}
	if len(a.autoscalers) >= maxModelGroups || a.groups[model] == nil && a.policy.Spec.FindModel(model) == nil {
		return nil
	}
	s := new(modelAutoscaler)
	a.autoscalers[model] = s
	return s
}

// countDemand counts a request as demand, whether or not it is served: a request refused for lack of room is demand too. A
// retry is not counted again.
func (a *Autoscaling) countDemand(v *Request, now time.Time) {
	if v.demandCounted {
		return
	}
	v.demandCounted = true
	s := a.autoscalerFor(v.Model)
	if s == nil {
		return
	}
	prompt := max(v.Query.PromptTokens, v.EstimatedTokens)
	s.demandMeter.AddRequest(autoscale.TokenDemand{Prefill: float64(prompt) * s.uncachedShare.meanOr(1), Decode: float64(v.ExpectedOutputTokens())}, now)
}

// recordPlacement records the wait and the cached share of a request that was sent to a worker.
func (a *Autoscaling) recordPlacement(v *Request, cached int64, now time.Time) {
	if s := a.autoscalerFor(v.Model); s != nil {
		s.waits.AddWait(now.Sub(v.ArrivedAt), now)
		s.uncachedShare.addSample(1 - min(float64(cached)/float64(max(v.Query.PromptTokens, 1)), 1))
	}
}

// recordAbandonedWait records the wait of a request that was not sent to any worker.
func (a *Autoscaling) recordAbandonedWait(v *Request, now time.Time) {
	if s := a.autoscalerFor(v.Model); s != nil {
		s.waits.AddWait(now.Sub(v.ArrivedAt), now)
	}
}

// UpdateAutoscaling computes the recommendation of every model, at most once per autoscaleInterval. Models of the spec count
// also while no worker serves them.
func (a *Autoscaling) UpdateAutoscaling(now time.Time) {
	if now.Sub(a.autoscaledAt) < autoscaleInterval && !now.Before(a.autoscaledAt) {
		return
	}
	a.autoscaledAt = now
	for name := range a.groups {
		a.autoscalerFor(name)
	}
	for i := range a.policy.Spec.Models {
		a.autoscalerFor(a.policy.Spec.Models[i].Name)
	}
	for name, s := range a.autoscalers {
		if a.groups[name] == nil && a.policy.Spec.FindModel(name) == nil {
			delete(a.autoscalers, name)
			continue
		}
		a.updateModelAutoscaling(name, s, now)
	}
}

func (a *Autoscaling) updateModelAutoscaling(name string, s *modelAutoscaler, now time.Time) {
	in := autoscale.ReplicaInput{}
	s.demandRate, s.demandTrend = s.demandMeter.MeasureRates(now)
	in.Rate, in.Trend = s.demandRate, s.demandTrend
	if p := a.groups[name]; p != nil {
		var sum autoscale.TokenDemand
		for i := range p.view.Workers {
			if v := &p.view.Workers[i]; v.DownReason == "" {
				in.Ready++
				sum.Prefill += v.Rates.PrefillRate
				sum.Decode += v.Rates.DecodeRate(decodeRateBatch)
			}
		}
		switch {
		case in.Ready > 0:
			s.replicaRate = autoscale.TokenDemand{Prefill: sum.Prefill / float64(in.Ready), Decode: sum.Decode / float64(in.Ready)}
		case s.replicaRate.Prefill == 0 && len(p.workers) > 0: // no worker was ready yet: use the prior of its GPU type
			r := p.workers[0].prior.Rates
			s.replicaRate = autoscale.TokenDemand{Prefill: r.PrefillRate, Decode: r.DecodeRate(decodeRateBatch)}
		}
		in.Backlog = float64(p.queue.WaitingWork())
	}
	in.Replica, s.readyReplicas = s.replicaRate, in.Ready
	s.recommendation = autoscale.RecommendReplicas(a.policy.autoscaleConfig(name), &in, &s.state, now)
}
