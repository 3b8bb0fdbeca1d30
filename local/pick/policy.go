package pick

import (
	"fmt"
	"strings"
)

// Policy selects how a worker is chosen among those that have room.
type Policy uint8

// The policies. The package documentation states when to use which.
const (
	Predictive               Policy = iota // fewest predicted seconds: the default
	RoundRobin                             // in turn
	WeightedRoundRobin                     // in turn, by weight
	Random                                 // any worker
	WeightedRandom                         // any worker, by weight
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

// policyRule is one policy: its name in specs, its reason code, the unit of its costs, and its choose function.
type policyRule struct {
	name, reason string
	unit         string // unit of placement.costs after a choice; empty when it sets no costs
	choose       func(*placement) int32
}

var policyRules = [...]policyRule{
	Predictive:               {"predictive", "least_seconds", "", choosePredictive},
	RoundRobin:               {"round_robin", "turn", "", chooseRoundRobin},
	WeightedRoundRobin:       {"weighted_round_robin", "weighted_turn", "", chooseWeightedRoundRobin},
	Random:                   {"random", "chance", "", chooseRandom},
	WeightedRandom:           {"weighted_random", "weighted_chance", "", chooseWeightedRandom},
	PowerOfTwo:               {"power_of_two", "lighter_of_two", "", choosePowerOfTwo},
	LeastConnections:         {"least_connections", "fewest_sequences", "sequences", chooseLeastConnections},
	WeightedLeastConnections: {"weighted_least_connections", "fewest_sequences_for_weight", "sequences for its weight", chooseWeightedLeastConnections},
	LeastQueue:               {"least_queue", "shortest_queue", "requests before their prefill", chooseLeastQueue},
	LeastPendingTokens:       {"least_pending_tokens", "fewest_pending_tokens", "pending tokens", chooseLeastPendingTokens},
	LeastResponseTime:        {"least_response_time", "least_response_time", "peak seconds times sequences", chooseLeastResponseTime},
	GPUUtilization:           {"gpu_utilization", "least_busy_gpu", "GPU busy", chooseGPUUtilization},
	GPUAware:                 {"gpu_aware", "least_composite", "score", chooseGPUAware},
	ConsistentHash:           {"consistent_hash", "key", "distance from the key", chooseConsistentHash},
	PrefixAffinity:           {"prefix_affinity", "prefix", "sequences for its weight", choosePrefixAffinity},
	StickyUntilSaturated:     {"sticky_until_saturated", "sticky", "seconds to first token", chooseSticky},
	Prequal:                  {"prequal", "fastest_cold", "", choosePrequal},
	LMetric:                  {"lmetric", "least_lmetric", "tokens times batch", chooseLMetric},
	CacheAware:               {"cache_aware", "cache_aware", "blocks", chooseCacheAware},
	OverlapCost:              {"overlap_cost", "least_blocks", "blocks", chooseOverlapCost},
	ScoreBlend:               {"score_blend", "best_scores", "missing score", chooseScoreBlend},
}

// policyNames returns the names of all policies, the default first.
func policyNames() []string {
	out := make([]string, len(policyRules))
	for i := range policyRules {
		out[i] = policyRules[i].name
	}
	return out
}

// String returns the policy's name in specs.
func (p Policy) String() string {
	if int(p) < len(policyRules) {
		return policyRules[p].name
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

func (p Policy) ruleOf() *policyRule {
	if int(p) < len(policyRules) {
		return &policyRules[p]
	}
	return &policyRules[Predictive]
}

// ParsePolicy parses a policy's name. The empty string is Predictive.
func ParsePolicy(name string) (Policy, error) {
	if name == "" {
		return Predictive, nil
	}
	for i := range policyRules {
		if policyRules[i].name == name {
			return Policy(i), nil
		}
	}
	return Predictive, fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(policyNames(), ", "))
}
