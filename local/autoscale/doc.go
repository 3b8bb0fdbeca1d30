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
