package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// baselineRule is the rule of another system, used instead of Spillway's gateways and schedulers.
type baselineRule uint8

const (
	noBaseline       baselineRule = iota
	ruleSkyWalker                 // selective pushing: to replicas with nothing pending, to peers that have one, else it waits
	ruleBlindPushing              // SkyWalker's balancer without that: every request is pushed at once
	ruleFixedLimit                // with a fixed limit of requests at each replica instead
	ruleGORGO                     // lowest round trip, prefill and own queue; peers' queues cost nothing
	ruleGORGOPriced               // with peers' queues
	rulePrequalPool               // hot and cold, by a pool of asynchronous probes
)

// baselineNames are their policy names.
var baselineNames = [...]string{
	ruleSkyWalker: "skywalker", ruleBlindPushing: "blind_pushing", ruleFixedLimit: "fixed_limit", ruleGORGO: "gorgo", ruleGORGOPriced: "gorgo_priced", rulePrequalPool: "prequal_pool",
}

// PolicyNames are the valid names of a scenario's Policy: those of local/pick, which choose workers below Spillway's
// tiers, then the baselines of chaos/baseline, which replace the tiers.
func PolicyNames() []string { return slices.Concat(spec.WorkerPolicies(), baselineNames[1:]) }

// IsBaseline reports whether a policy replaces Spillway's tiers.
func IsBaseline(policy string) bool { return parseBaseline(policy) != noBaseline }

// CheckPolicy returns an error with the valid names for an unknown one. The empty one is the default.
func CheckPolicy(name string) error {
	if _, err := pick.ParsePolicy(name); err == nil || IsBaseline(name) {
		return nil
	}
	return fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(PolicyNames(), ", "))
}

func parseBaseline(policy string) baselineRule {
	if i := slices.Index(baselineNames[:], policy); i > 0 {
		return baselineRule(i)
	}
	return noBaseline
}
