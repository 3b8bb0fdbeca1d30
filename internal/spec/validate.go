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

// Policies are the worker-choice policies that routing.policy may name.
func Policies() []string {
	return []string{
		"predictive", "round_robin", "weighted_round_robin", "random", "weighted_random", "power_of_two", "least_connections",
		"weighted_least_connections", "least_queue", "least_pending_tokens", "least_response_time", "gpu_utilization", "gpu_aware",
		"consistent_hash", "prefix_affinity", "sticky_until_saturated", "prequal", "lmetric",
		"cache_aware", "overlap_cost", "score_blend",
	}
}

// Modes are the steering modes that a service may name.
func Modes() []string { return []string{"latency", "geo", "weighted", "failover"} }

// Validate judges a spec whose defaults are filled (Decode fills them) and returns every mistake in it.
func (s *Spec) Validate() []Problem { return s.judge(false) }

func (s *Spec) judge(alone bool) []Problem {
	j := &judge{
		alone: alone, spec: s, regions: s.regionNames(), models: names(s.Models, func(m *Model) string { return m.Name }),
		aliases: names(s.Aliases, func(a *Alias) string { return a.Name }), tenantList: names(s.Tenants, func(t *Tenant) string { return t.Name }),
		sets: map[*string]map[string]bool{},
	}
	j.askable = slices.Concat(j.models, j.aliases)
	if alone {
		j.tenantList = append(j.tenantList, TenantAlone)
	}
	if j.tooMany(); len(j.found) > 0 {
		return j.found
	}
	if !alone || s.Zone.Name != "" || len(s.Zone.Nameservers) > 0 {
		j.zone()
	}
	if !alone || len(s.Services) > 0 {
		j.services()
	}
	if !alone || len(s.Regions) > 0 {
		j.places()
	}
	j.modelList()
	j.aliasList()
	j.fallbacks()
	j.tenants()
	j.issuers()
	j.pools()
	j.objectives()
	j.policy()
	return j.found
}

// judge collects the mistakes of one spec.
type judge struct {
	alone                    bool // the spec is of a zone that stands alone
	spec                     *Spec
	regions, models, aliases []string
	askable, tenantList      []string // models and aliases; tenants
	found                    []Problem

	sets map[*string]map[string]bool // of the lists above, by their first element, made when one is first looked into
}

func (j *judge) bad(path, reason, hint string) {
	j.found = append(j.found, Problem{Path: path, Reason: reason, Hint: hint})
}

func names[T any](list []T, name func(*T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = name(&list[i])
	}
	return out
}

// enough mistakes are found once nobody would read more: suggestions stop there.
const enough = 200

// tooMany bounds what every node keeps an index of.
func (j *judge) tooMany() {
	s := j.spec
	for _, l := range []struct {
		key     string
		n, most int
	}{{"regions", len(s.Regions), 1000}, {"services", len(s.Services), 1000}, {"models", len(s.Models), 1000}, {"aliases", len(s.Aliases), 1000}} {
		if l.n > l.most {
			j.bad("$."+l.key, fmt.Sprintf("there are %d %s, more than %d", l.n, l.key, l.most), "split the fleet over several zones with a spec each")
		}
	}
}

// distinct reports every name that stood there before, saying where.
func (j *judge) distinct(noun string, names []string, path func(i int) string) {
	first := make(map[string]int, len(names))
	for i, n := range names {
		if n == "" {
			continue
		}
		if at, ok := first[n]; ok {
			j.bad(path(i), fmt.Sprintf("%s %q is there twice", noun, n), "it also stands at "+strings.TrimPrefix(path(at), "$.")+": keep one, or rename it")
			continue
		}
		first[n] = i
	}
}

// known reports names that refer to nothing. Needs is where they would be declared.
func (j *judge) known(noun, needs string, refs, declared []string, path func(i int) string) {
	if len(refs) == 0 {
		return
	}
	set := j.setOf(declared)
	for i, n := range refs {
		if !set[n] && len(j.found) < enough {
			j.found = append(j.found, Problem{
				Path: path(i), Reason: fmt.Sprintf("unknown %s %q", noun, n),
				Hint: strict.Suggest(n, declared, noun+"s"), Needs: needs,
			})
		}
	}
}

// setOf is a list that stays as it is, to look names up in: thousands of tenants may refer to thousands of models.
func (j *judge) setOf(list []string) map[string]bool {
	if len(list) == 0 {
		return nil
	}
	if set, ok := j.sets[&list[0]]; ok {
		return set
	}
	set := make(map[string]bool, len(list))
	for _, n := range list {
		set[n] = true
	}
	j.sets[&list[0]] = set
	return set
}

func item(list string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%s[%d]", list, i) }
}

func itemName(list string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%s[%d].name", list, i) }
}

func (j *judge) between(path, noun string, d Duration, low, high time.Duration) {
	if time.Duration(d) < low || time.Duration(d) > high {
		j.bad(path, fmt.Sprintf("%s %s is out of range", noun, d), fmt.Sprintf("write a duration from %s to %s", strict.FormatDuration(low), strict.FormatDuration(high)))
	}
}

// share reports a number that is not above 0 and at most 1.
func (j *judge) share(path, noun string, x float64) {
	if !(x > 0 && x <= 1) {
		j.bad(path, fmt.Sprintf("%s %v is not a share", noun, x), "write a number above 0 and at most 1, such as 0.25")
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func fqdnHint(name, example string) string {
	fixed := strings.ToLower(strings.ReplaceAll(name, "@", "."))
	if !strings.HasSuffix(fixed, ".") {
		fixed += "."
	}
	if fixed != name && badFQDN(fixed) == "" {
		return fmt.Sprintf("write %q", fixed)
	}
	return fmt.Sprintf("write a full lower-case name that ends with a dot, such as %q", example)
}

const labelHint = "use lower-case letters, digits and hyphens, at most 63"

const wordHint = "use letters, digits and - _ . / : @ +, at most 128"

func (j *judge) zone() {
	z := &j.spec.Zone
	switch {
	case z.Name == "":
		j.bad("$.zone.name", "the zone has no name", `write the DNS zone that is delegated to Spillway: zone: {name: "api.example."}`)
	case badFQDN(z.Name) != "":
		j.bad("$.zone.name", badFQDN(z.Name), fqdnHint(z.Name, "api.example."))
	}
	if z.Contact != "" && badFQDN(z.Contact) != "" && (badFQDN(z.Name) == "" || z.Contact != "hostmaster."+z.Name) {
		j.bad("$.zone.contact", "contact: "+badFQDN(z.Contact), fqdnHint(z.Contact, "hostmaster.api.example."))
	}
	j.between("$.zone.ttl", "ttl", z.TTL, time.Second, 7*24*time.Hour)
	j.nameservers(z.Nameservers)
	j.caa(z.CAA)
	j.dnssec(&z.DNSSEC)
}

func (j *judge) nameservers(list []Nameserver) {
	const path = "$.zone.nameservers"
	if len(list) == 0 {
		j.bad(path, "the zone has no nameservers", "name each global node as resolvers see it, with its address")
	}
	for i := range list {
		n := &list[i]
		if why := badFQDN(n.Name); why != "" {
			j.bad(itemName(path)(i), why, fqdnHint(n.Name, "ns1.api.example."))
		}
		if len(n.Addresses) == 0 {
			j.bad(item(path)(i), fmt.Sprintf("nameserver %q has no addresses", n.Name), "write addresses: [192.0.2.53], the glue that resolvers need")
		}
		for k, a := range n.Addresses {
			if why, hint := badAddress(a); why != "" {
				j.bad(fmt.Sprintf("%s[%d].addresses[%d]", path, i, k), why, hint)
			}
		}
	}
	j.distinct("nameserver", names(list, func(n *Nameserver) string { return n.Name }), itemName(path))
	j.distinctAddresses("nameserver address", path, len(list), func(i int) []netip.Addr { return list[i].Addresses })
}

func (j *judge) policy() {
	j.steering(&j.spec.Steering)
	r := &j.spec.Routing
	if !slices.Contains(Policies(), r.Policy) {
		j.bad("$.routing.policy", fmt.Sprintf("unknown policy %q", r.Policy), strict.Suggest(r.Policy, Policies(), "policies"))
	}
	j.hashKey(r.HashKey)
	if !(r.KVOvercommit >= 0.5 && r.KVOvercommit <= 2) {
		j.bad("$.routing.kv_overcommit", fmt.Sprintf("kv_overcommit %v is out of range", r.KVOvercommit), "write a factor from 0.5 to 2, such as 1.2")
	}
	j.share("$.routing.long_share", "long_share", r.LongShare)
	if !(r.OverlapWeight > 0 && r.OverlapWeight <= 100) {
		j.bad("$.routing.overlap_weight", fmt.Sprintf("overlap_weight %v is out of range", r.OverlapWeight), "write a factor over 0 and up to 100, such as 1; the policy least_connections counts no prefill at all")
	}
	if !(r.Temperature >= 0 && r.Temperature <= 10) {
		j.bad("$.routing.temperature", fmt.Sprintf("temperature %v is out of range", r.Temperature), "write 0 for always the least cost, or up to 10 for nearly by chance")
	}
	j.between("$.routing.spill_margin", "spill_margin", r.SpillMargin, 0, 10*time.Second)
	j.share("$.routing.spill_share", "spill_share", r.SpillShare)
	j.between("$.routing.spill_fresh", "spill_fresh", r.SpillFresh, 100*time.Millisecond, 10*time.Second)
	if r.MaxBody < 1<<10 || r.MaxBody > 1<<30 {
		j.bad("$.routing.max_body", fmt.Sprintf("max_body %d is out of range", r.MaxBody), "write bytes, from 1024 to 1073741824")
	}
	j.extraPaths(r.ExtraPaths)
	if n := r.ResumeText; n != nil && (*n < 0 || *n > 16<<20) {
		j.bad("$.routing.resume_text", fmt.Sprintf("resume_text %d is out of range", *n), "write bytes, up to 16777216; 0 resumes no stream")
	}
	j.share("$.routing.retry_budget", "retry_budget", r.RetryBudget)
	j.queue(&r.Queue)
	j.health(&r.Health)
	j.batch(&r.Batch)
	j.hedge(&r.Hedge)
}

// extraPaths judges routing.extra_paths.
func (j *judge) extraPaths(list []string) {
	const path = "$.routing.extra_paths"
	if len(list) > paths.MaxExtra {
		j.bad(path, fmt.Sprintf("%d extra paths are too many", len(list)), fmt.Sprintf("write at most %d; a segment {name} or a last * takes several", paths.MaxExtra))
	}
	for i, p := range list {
		if err := paths.Check(p); err != nil {
			j.bad(item(path)(i), err.Error(), `write a path such as "/api/chat", "/v1/{name}/run", "/custom/*" or "/package.Service/Method"`)
		}
	}
	j.distinct("path", list, item(path))
}
