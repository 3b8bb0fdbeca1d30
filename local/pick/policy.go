package pick

import (
	"fmt"
	"strings"
)

// Policy says how a worker is chosen among those that have room.
type Policy uint8

// The policies. The package's doc says when to use which.
const (
	Predictive               Policy = iota // fewest predicted seconds: the default
	RoundRobin                             // in turn
	WeightedRoundRobin                     // in turn, by weight
	Random                                 // anybody
	WeightedRandom                         // anybody, by weight
	PowerOfTwo                             // the lighter of two at random
	LeastConnections                       // fewest sequences
	WeightedLeastConnections               // fewest sequences for its weight
	LeastQueue                             // fewest requests waiting for their prefill
	LeastPendingTokens                     // fewest prompt tokens waiting for their prefill
	LeastResponseTime                      // least peak EWMA of time to first token, times sequences
	GPUUtilization                         // least busy GPU
	GPUAware                               // least composite of queue, GPU, KV cache and latency
	ConsistentHash                         // the key's own worker, unless it holds more than its share
	PrefixAffinity                         // most of the prompt cached, unless the load is out of balance
	StickyUntilSaturated                   // the workers that hold the prompt, until waiting for them costs too much
	Prequal                                // fastest of those that are not hot
	LMetric                                // least uncached prefill times batch
	CacheAware                             // SGLang's: most of the prompt cached, else least in the index
	OverlapCost                            // Dynamo's: least blocks to prefill and to decode over
	ScoreBlend                             // llm-d's: most of cached prefix, short queue and free KV cache
)

// rule is one policy: its name in specs, its reason word, what its costs count, and how it chooses.
type rule struct {
	name, reason string
	unit         string // what v.costs holds after a choice; empty when it holds nothing
	choose       func(*View) int32
}

var rules = [...]rule{
	Predictive:               {"predictive", "least_seconds", "", (*View).predictive},
	RoundRobin:               {"round_robin", "turn", "", (*View).roundRobin},
	WeightedRoundRobin:       {"weighted_round_robin", "weighted_turn", "", (*View).weightedRoundRobin},
	Random:                   {"random", "chance", "", (*View).random},
	WeightedRandom:           {"weighted_random", "weighted_chance", "", (*View).weightedRandom},
	PowerOfTwo:               {"power_of_two", "lighter_of_two", "", (*View).powerOfTwo},
	LeastConnections:         {"least_connections", "fewest_sequences", "sequences", (*View).leastConnections},
	WeightedLeastConnections: {"weighted_least_connections", "fewest_sequences_for_weight", "sequences for its weight", (*View).weightedLeastConnections},
	LeastQueue:               {"least_queue", "shortest_queue", "requests before their prefill", (*View).leastQueue},
	LeastPendingTokens:       {"least_pending_tokens", "fewest_pending_tokens", "pending tokens", (*View).leastPendingTokens},
	LeastResponseTime:        {"least_response_time", "least_response_time", "peak seconds times sequences", (*View).leastResponseTime},
	GPUUtilization:           {"gpu_utilization", "least_busy_gpu", "GPU busy", (*View).gpuUtilization},
	GPUAware:                 {"gpu_aware", "least_composite", "score", (*View).gpuAware},
	ConsistentHash:           {"consistent_hash", "key", "distance from the key", (*View).consistentHash},
	PrefixAffinity:           {"prefix_affinity", "prefix", "sequences for its weight", (*View).prefixAffinity},
	StickyUntilSaturated:     {"sticky_until_saturated", "sticky", "seconds to first token", (*View).stickyUntilSaturated},
	Prequal:                  {"prequal", "fastest_cold", "", (*View).prequal},
	LMetric:                  {"lmetric", "least_lmetric", "tokens times batch", (*View).lmetric},
	CacheAware:               {"cache_aware", "cache_aware", "blocks", (*View).cacheAware},
	OverlapCost:              {"overlap_cost", "least_blocks", "blocks", (*View).overlapCost},
	ScoreBlend:               {"score_blend", "best_scores", "missing score", (*View).scoreBlend},
}

// Policies lists the names of all policies, the default first.
func Policies() []string {
	out := make([]string, len(rules))
	for i := range rules {
		out[i] = rules[i].name
	}
	return out
}

// String is the policy's name in specs.
func (p Policy) String() string {
	if int(p) < len(rules) {
		return rules[p].name
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

func (p Policy) rule() *rule {
	if int(p) < len(rules) {
		return &rules[p]
	}
	return &rules[Predictive]
}

// ParsePolicy reads a policy's name. The empty string is Predictive.
func ParsePolicy(name string) (Policy, error) {
	if name == "" {
		return Predictive, nil
	}
	for i := range rules {
		if rules[i].name == name {
			return Policy(i), nil
		}
	}
	return Predictive, fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(Policies(), ", "))
}
