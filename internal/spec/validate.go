package spec

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/paths"
)

// WorkerPolicies returns the worker-choice policies allowed in routing.policy.
func WorkerPolicies() []string {
	return []string{
		"predictive", "round_robin", "weighted_round_robin", "random", "weighted_random", "power_of_two", "least_connections",
		"weighted_least_connections", "least_queue", "least_pending_tokens", "least_response_time", "gpu_utilization", "gpu_aware",
		"consistent_hash", "prefix_affinity", "sticky_until_saturated", "prequal", "lmetric",
		"cache_aware", "overlap_cost", "score_blend",
	}
}

// SteeringModes returns the steering modes allowed in a service.
func SteeringModes() []string { return []string{"latency", "geo", "weighted", "failover"} }

// Validate checks a spec with defaults filled in (by Decode) and returns every mistake in it.
func (s *Spec) Validate() []Problem { return s.findProblems(false) }

func (s *Spec) findProblems(alone bool) []Problem {
	j := &validator{
		standalone: alone, spec: s, regions: s.regionNames(), models: namesOf(s.Models, func(m *Model) string { return m.Name }),
		aliases: namesOf(s.Aliases, func(a *Alias) string { return a.Name }), tenantNames: namesOf(s.Tenants, func(t *Tenant) string { return t.Name }),
		lookupSets: map[*string]map[string]bool{},
	}
	j.requestNames = slices.Concat(j.models, j.aliases)
	if alone {
		j.tenantNames = append(j.tenantNames, DefaultTenant)
	}
	if j.checkCounts(); len(j.problems) > 0 {
		return j.problems
	}
	if !alone || s.Zone.Name != "" || len(s.Zone.Nameservers) > 0 {
		j.checkZone()
	}
	if !alone || len(s.Services) > 0 {
		j.checkServices()
	}
	if !alone || len(s.Regions) > 0 {
		j.checkRegions()
	}
	j.checkModels()
	j.checkAliases()
	j.checkFallbacks()
	j.checkTenants()
	j.checkIssuers()
	j.checkPools()
	j.checkObjectives()
	j.checkPolicy()
	return j.problems
}

// validator collects the mistakes of one spec.
type validator struct {
	standalone                bool // the spec of a standalone zone
	spec                      *Spec
	regions, models, aliases  []string
	requestNames, tenantNames []string // models and aliases; tenants
	problems                  []Problem

	lookupSets map[*string]map[string]bool // sets of the lists above, by their first element, built on first use
}

func (j *validator) addProblem(path, reason, hint string) {
	j.problems = append(j.problems, Problem{Path: path, Reason: reason, Hint: hint})
}

func namesOf[T any](list []T, name func(*T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = name(&list[i])
	}
	return out
}

// maxUsefulProblems is the number of mistakes after which suggestions are no longer computed.
const maxUsefulProblems = 200

// checkCounts bounds the lists that every node indexes.
func (j *validator) checkCounts() {
	s := j.spec
	for _, l := range []struct {
		key     string
		n, most int
	}{{"regions", len(s.Regions), 1000}, {"services", len(s.Services), 1000}, {"models", len(s.Models), 1000}, {"aliases", len(s.Aliases), 1000}} {
		if l.n > l.most {
			j.addProblem("$."+l.key, fmt.Sprintf("there are %d %s, more than %d", l.n, l.key, l.most), "split the fleet over several zones with a spec each")
		}
	}
}

// checkUnique reports every duplicate name with the position of the first.
func (j *validator) checkUnique(noun string, names []string, path func(i int) string) {
	first := make(map[string]int, len(names))
	for i, n := range names {
		if n == "" {
			continue
		}
		if at, ok := first[n]; ok {
			j.addProblem(path(i), fmt.Sprintf("%s %q is there twice", noun, n), "it also stands at "+strings.TrimPrefix(path(at), "$.")+": keep one, or rename it")
			continue
		}
		first[n] = i
	}
}

// checkReferences reports names that refer to nothing. needs is where they would be declared.
func (j *validator) checkReferences(noun, needs string, refs, declared []string, path func(i int) string) {
	if len(refs) == 0 {
		return
	}
	set := j.lookupSet(declared)
	for i, n := range refs {
		if !set[n] && len(j.problems) < maxUsefulProblems {
			j.problems = append(j.problems, Problem{
				Path: path(i), Reason: fmt.Sprintf("unknown %s %q", noun, n),
				Hint: strict.SuggestName(n, declared, noun+"s"), DependsOn: needs,
			})
		}
	}
}

// lookupSet returns a set of an unchanging list: thousands of tenants may refer to thousands of models.
func (j *validator) lookupSet(list []string) map[string]bool {
	if len(list) == 0 {
		return nil
	}
	if set, ok := j.lookupSets[&list[0]]; ok {
		return set
	}
	set := make(map[string]bool, len(list))
	for _, n := range list {
		set[n] = true
	}
	j.lookupSets[&list[0]] = set
	return set
}

func itemPath(list string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%s[%d]", list, i) }
}

func itemNamePath(list string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%s[%d].name", list, i) }
}

func (j *validator) checkDuration(path, noun string, d Duration, low, high time.Duration) {
	if time.Duration(d) < low || time.Duration(d) > high {
		j.addProblem(path, fmt.Sprintf("%s %s is out of range", noun, d), fmt.Sprintf("write a duration from %s to %s", strict.FormatDuration(low), strict.FormatDuration(high)))
	}
}

// checkShare reports a number outside (0, 1].
func (j *validator) checkShare(path, noun string, x float64) {
	if !(x > 0 && x <= 1) {
		j.addProblem(path, fmt.Sprintf("%s %v is not a share", noun, x), "write a number above 0 and at most 1, such as 0.25")
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func fqdnHint(name, example string) string {
	fixed := strings.ToLower(strings.ReplaceAll(name, "@", "."))
	if !strings.HasSuffix(fixed, ".") {
		fixed += "."
	}
	if fixed != name && fqdnProblem(fixed) == "" {
		return fmt.Sprintf("write %q", fixed)
	}
	return fmt.Sprintf("write a full lower-case name that ends with a dot, such as %q", example)
}

const labelHint = "use lower-case letters, digits and hyphens, at most 63"

const nameHint = "use letters, digits and - _ . / : @ +, at most 128"

func (j *validator) checkZone() {
	z := &j.spec.Zone
	switch {
	case z.Name == "":
		j.addProblem("$.zone.name", "the zone has no name", `write the DNS zone that is delegated to Spillway: zone: {name: "api.example."}`)
	case fqdnProblem(z.Name) != "":
		j.addProblem("$.zone.name", fqdnProblem(z.Name), fqdnHint(z.Name, "api.example."))
	}
	if z.Contact != "" && fqdnProblem(z.Contact) != "" && (fqdnProblem(z.Name) == "" || z.Contact != "hostmaster."+z.Name) {
		j.addProblem("$.zone.contact", "contact: "+fqdnProblem(z.Contact), fqdnHint(z.Contact, "hostmaster.api.example."))
	}
	j.checkDuration("$.zone.ttl", "ttl", z.TTL, time.Second, 7*24*time.Hour)
	j.checkNameservers(z.Nameservers)
	j.checkCAA(z.CAA)
	j.checkDNSSEC(&z.DNSSEC)
}

func (j *validator) checkNameservers(list []Nameserver) {
	const path = "$.zone.nameservers"
	if len(list) == 0 {
		j.addProblem(path, "the zone has no nameservers", "name each global node as resolvers see it, with its address")
	}
	for i := range list {
		n := &list[i]
		if why := fqdnProblem(n.Name); why != "" {
			j.addProblem(itemNamePath(path)(i), why, fqdnHint(n.Name, "ns1.api.example."))
		}
		if len(n.Addresses) == 0 {
			j.addProblem(itemPath(path)(i), fmt.Sprintf("nameserver %q has no addresses", n.Name), "write addresses: [192.0.2.53], the glue that resolvers need")
		}
		for k, a := range n.Addresses {
			if why, hint := addressProblem(a); why != "" {
				j.addProblem(fmt.Sprintf("%s[%d].addresses[%d]", path, i, k), why, hint)
			}
		}
	}
	j.checkUnique("nameserver", namesOf(list, func(n *Nameserver) string { return n.Name }), itemNamePath(path))
	j.checkUniqueAddresses("nameserver address", path, len(list), func(i int) []netip.Addr { return list[i].Addresses })
}

func (j *validator) checkPolicy() {
	j.checkSteering(&j.spec.Steering)
	r := &j.spec.Routing
	if !slices.Contains(WorkerPolicies(), r.Policy) {
		j.addProblem("$.routing.policy", fmt.Sprintf("unknown policy %q", r.Policy), strict.SuggestName(r.Policy, WorkerPolicies(), "policies"))
	}
	j.checkHashKey(r.HashKey)
	if !(r.KVOvercommit >= 0.5 && r.KVOvercommit <= 2) {
		j.addProblem("$.routing.kv_overcommit", fmt.Sprintf("kv_overcommit %v is out of range", r.KVOvercommit), "write a factor from 0.5 to 2, such as 1.2")
	}
	j.checkShare("$.routing.long_share", "long_share", r.LongShare)
	if !(r.OverlapWeight > 0 && r.OverlapWeight <= 100) {
		j.addProblem("$.routing.overlap_weight", fmt.Sprintf("overlap_weight %v is out of range", r.OverlapWeight), "write a factor over 0 and up to 100, such as 1; the policy least_connections counts no prefill at all")
	}
	if !(r.Temperature >= 0 && r.Temperature <= 10) {
		j.addProblem("$.routing.temperature", fmt.Sprintf("temperature %v is out of range", r.Temperature), "write 0 for always the least cost, or up to 10 for nearly by chance")
	}
	j.checkDuration("$.routing.spill_margin", "spill_margin", r.SpillMargin, 0, 10*time.Second)
	j.checkShare("$.routing.spill_share", "spill_share", r.SpillShare)
	j.checkDuration("$.routing.spill_fresh", "spill_fresh", r.SpillFresh, 100*time.Millisecond, 10*time.Second)
	if r.MaxBody < 1<<10 || r.MaxBody > 1<<30 {
		j.addProblem("$.routing.max_body", fmt.Sprintf("max_body %d is out of range", r.MaxBody), "write bytes, from 1024 to 1073741824")
	}
	j.checkExtraPaths(r.ExtraPaths)
	if n := r.ResumeText; n != nil && (*n < 0 || *n > 16<<20) {
		j.addProblem("$.routing.resume_text", fmt.Sprintf("resume_text %d is out of range", *n), "write bytes, up to 16777216; 0 resumes no stream")
	}
	j.checkShare("$.routing.retry_budget", "retry_budget", r.RetryBudget)
	j.checkQueue(&r.Queue)
	j.checkHealth(&r.Health)
	j.checkBatch(&r.Batch)
	j.checkHedge(&r.Hedge)
}

// checkExtraPaths checks routing.extra_paths.
func (j *validator) checkExtraPaths(list []string) {
	const path = "$.routing.extra_paths"
	if len(list) > paths.MaxExtraPaths {
		j.addProblem(path, fmt.Sprintf("%d extra paths are too many", len(list)), fmt.Sprintf("write at most %d; a segment {name} or a last * takes several", paths.MaxExtraPaths))
	}
	for i, p := range list {
		if err := paths.CheckPattern(p); err != nil {
			j.addProblem(itemPath(path)(i), err.Error(), `write a path such as "/api/chat", "/v1/{name}/run", "/custom/*" or "/package.Service/Method"`)
		}
	}
	j.checkUnique("path", list, itemPath(path))
}
