package pick

import (
	"fmt"
	"strings"
)

// Policy says how a worker is chosen among those that have room.
type Policy uint8

// The policies.
const (
	Predictive       Policy = iota // least predicted seconds: the default
	RoundRobin                     // in turn
	LeastConnections               // fewest sequences for its weight
	PowerOfTwo                     // the lighter of two at random
)

var policyNames = [...]string{"predictive", "round_robin", "least_connections", "power_of_two"}

var policyReasons = [...]string{"least_seconds", "turn", "fewest_sequences", "lighter_of_two"}

// String is the policy's name in specs.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

func (p Policy) reason() string {
	if int(p) < len(policyReasons) {
		return policyReasons[p]
	}
	return policyReasons[Predictive]
}

// ParsePolicy reads a policy's name. The empty string is Predictive.
func ParsePolicy(name string) (Policy, error) {
	if name == "" {
		return Predictive, nil
	}
	for i, n := range policyNames {
		if n == name {
			return Policy(i), nil
		}
	}
	return Predictive, fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(policyNames[:], ", "))
}
