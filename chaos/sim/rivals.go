package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/local/pick"
)

// rivalRule is another system's way of choosing, which stands where our gateways and floors stand.
type rivalRule uint8

const (
	noRival     rivalRule = iota
	skyWalker             // selective pushing: to replicas with nothing pending, to peers that have one, else it waits
	blind                 // SkyWalker's balancer without that: every request is pushed at once
	fixedLimit            // and with a fixed limit of requests at each replica instead
	gorgo                 // least round trip, prefill and own queue; peers' queues cost nothing
	gorgoPriced           // with peers' queues
	prequalPool           // hot and cold, by a pool of asynchronous probes
)

// rivals are their names as policies.
var rivals = [...]string{
	skyWalker: "skywalker", blind: "blind_pushing", fixedLimit: "fixed_limit", gorgo: "gorgo", gorgoPriced: "gorgo_priced", prequalPool: "prequal_pool",
}

// Policies are the names that a scenario's Policy may have: those of local/pick, which choose workers under our own
// tiers, and after them the rivals of chaos/rival, which stand in the tiers' place.
func Policies() []string { return slices.Concat(pick.Policies(), rivals[1:]) }

// IsRival says whether a policy stands in our tiers' place.
func IsRival(policy string) bool { return rivalNamed(policy) != noRival }

// CheckPolicy says which names there are when it is none of them. The empty one is the default.
func CheckPolicy(name string) error {
	if _, err := pick.ParsePolicy(name); err == nil || IsRival(name) {
		return nil
	}
	return fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(Policies(), ", "))
}

func rivalNamed(policy string) rivalRule {
	if i := slices.Index(rivals[:], policy); i > 0 {
		return rivalRule(i)
	}
	return noRival
}

// floors is the policy of the zones' floors, of which nobody asks anything where a rival stands in their place.
func (r *run) floors() string {
	if r.rival != noRival {
		return ""
	}
	return r.s.Policy
}
