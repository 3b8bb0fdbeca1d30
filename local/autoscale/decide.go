// Package autoscale computes how many replicas of a model a zone should have, for autoscalers. RecommendReplicas is the entry
// point; DemandMeter and QueueWaits measure its inputs.
//
// Demand is the offered load in tokens per second, prefill and decode separately. Waiting and refused requests count like
// served ones, so that shedding never looks like idleness. With the learned prefill and decode rates of one replica:
//
//	use    = prefill / prefill rate + decode / decode rate + backlog / (prefill rate x lead time)
//	needed = use / target
//
// Prefill and decode are those expected after the lead time, which is how long a new replica takes until it serves. Growth
// over the last minute is extrapolated, at most to twice the present demand; decline is not. The recommendation rises at
// once. It falls only after fewer replicas would have been enough for the whole scale-down window. During the first window
// of an instance's life it does not fall below the present replicas, since their demand was not observed. The package reads
// no clock and starts no goroutines. A DemandMeter and a ReplicaWindow have one writer.
package autoscale

import (
	"math"
	"time"
)

// Config is the autoscaling configuration of one model.
type Config struct {
	// TargetUse is the target utilization of a replica, 0..1. Default 0.7.
	TargetUse float64
	// Min and Max bound the replicas; Max 0 means no bound.
	Min, Max int
	// Lead is how long a new replica takes until it serves. Default 2m.
	Lead time.Duration
	// Window is how long fewer replicas must have been enough before the recommendation falls. Default 5m.
	Window time.Duration
}

// ReplicaInput is the measured demand and capacity of a model.
type ReplicaInput struct {
	// Rate and Trend are those of a DemandMeter.
	Rate, Trend TokenDemand
	// Replica is the throughput of one replica in tokens/s; zero when it is not learned yet.
	Replica TokenDemand
	// Backlog is waiting prefill work, in tokens.
	Backlog float64
	// Ready is the number of ready replicas.
	Ready int
}

// Recommendation is the recommended number of replicas.
type Recommendation struct {
	// Needed is the number of replicas before rounding and bounds. The values of a zone's instances add up.
	Needed float64
	// Desired is the number of replicas after rounding and bounds.
	Desired int
	// Use is the utilization of the ready replicas by the present demand; 1 is full. With none ready it is the number of
	// replicas that the demand would fill.
	Use float64
}

// Throughput of a replica that was not measured yet: that of a small GPU, in tokens/s.
const (
	defaultPrefillRate = 3000
	defaultDecodeRate  = 300
)

// maxReplicas caps the recommendation.
const maxReplicas = 1_000_000

// windowParts is the number of parts into which the scale-down window is divided.
const windowParts = 12

// ReplicaWindow keeps the needed replicas over the scale-down window. The zero value is ready.
type ReplicaWindow struct {
	parts       [windowParts]float64
	currentPart int64
	partSpan    time.Duration
	since       time.Time
	lastDesired int // desired replicas before bounds
}

// RecommendReplicas computes the recommendation and records it in s.
func RecommendReplicas(c Config, in *ReplicaInput, s *ReplicaWindow, now time.Time) Recommendation {
	c = c.withDefaults()
	replica := in.Replica
	if !(replica.Prefill >= 1) {
		replica.Prefill = defaultPrefillRate
	}
	if !(replica.Decode >= 1) {
		replica.Decode = defaultDecodeRate
	}
	lead := max(c.Lead.Seconds(), 1)
	ahead := TokenDemand{forecastRate(in.Rate.Prefill, in.Trend.Prefill, lead), forecastRate(in.Rate.Decode, in.Trend.Decode, lead)}
	use := clampAmount(ahead.shareOfReplica(replica) + clampAmount(in.Backlog)/(replica.Prefill*max(lead, 30)))
	needed := s.recordNeeded(min(use/c.TargetUse, maxReplicas), c.Window, now)
	desired := s.roundUpWithSlack(needed)
	if now.Sub(s.since) < c.Window {
		desired = max(desired, in.Ready)
	}
	if desired = max(desired, c.Min); c.Max > 0 {
		desired = min(desired, c.Max)
	}
	present := TokenDemand{clampAmount(in.Rate.Prefill), clampAmount(in.Rate.Decode)}
	return Recommendation{Needed: needed, Desired: desired, Use: clampAmount(present.shareOfReplica(replica) / float64(max(in.Ready, 1)))}
}

func (c Config) withDefaults() Config {
	if !(c.TargetUse > 0 && c.TargetUse <= 1) {
		c.TargetUse = 0.7
	}
	if c.Lead <= 0 {
		c.Lead = 2 * time.Minute
	}
	if c.Window <= 0 {
		c.Window = 5 * time.Minute
	}
	c.Min = min(max(c.Min, 0), maxReplicas)
	return c
}

// forecastRate extrapolates growth over the lead time, at most to twice the present rate.
func forecastRate(rate, trend, lead float64) float64 {
	rate = clampAmount(rate)
	return rate + min(clampAmount(trend)*lead, rate)
}

// shareOfReplica is the share of a replica's time that a demand takes.
func (d TokenDemand) shareOfReplica(replica TokenDemand) float64 {
	return d.Prefill/replica.Prefill + d.Decode/replica.Decode
}

// recordNeeded records the needed replicas and returns their maximum over the window. If the clock steps back, the value
// counts in the present part.
func (s *ReplicaWindow) recordNeeded(needed float64, window time.Duration, now time.Time) float64 {
	part := max(window/windowParts, time.Millisecond)
	at := now.UnixNano() / int64(part)
	if s.since.IsZero() {
		s.since = now
	}
	if part != s.partSpan { // the window has changed: the maximum so far holds for all of it
		m := s.maxNeeded()
		for i := range s.parts {
			s.parts[i] = m
		}
		s.partSpan, s.currentPart = part, at
	}
	if at-s.currentPart >= windowParts {
		s.parts, s.currentPart = [windowParts]float64{}, at
	}
	for ; s.currentPart < at; s.currentPart++ {
		s.parts[(s.currentPart+1)%windowParts] = 0
	}
	p := &s.parts[s.currentPart%windowParts]
	*p = max(*p, needed)
	return s.maxNeeded()
}

// roundUpWithSlack rounds up. A slight decrease keeps the previous number, so that the result does not oscillate around a whole
// number.
func (s *ReplicaWindow) roundUpWithSlack(needed float64) int {
	n := int(math.Ceil(needed - 1e-9))
	if n < s.lastDesired && int(math.Ceil(needed*scaleDownSlack)) >= s.lastDesired {
		n = s.lastDesired
	}
	s.lastDesired = n
	return n
}

// scaleDownSlack is the factor by which the need must fit into fewer replicas before fewer are recommended.
const scaleDownSlack = 1.1

func (s *ReplicaWindow) maxNeeded() (m float64) {
	for _, v := range s.parts {
		m = max(m, v)
	}
	return m
}
