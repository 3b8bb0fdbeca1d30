// Package modelroute determines, by the rules of the spec, which model answers a request and which workers may:
// aliases with weights, conditions and pins, fallbacks to smaller models, and dedicated worker pools.
// ResolveModel resolves an alias, FallbackModels lists fallbacks, FindPool finds a pool.
//
// It is used by the gateway, by a zone without a region, and by explain in both. It never changes a spec and
// keeps no state.
//
// # How an alias is resolved
//
// A pin (the header X-Spillway-Target) wins if the alias lists it, regardless of its weight and conditions.
// Otherwise targets with weight 0 are excluded, and if the request meets the conditions of any target, so are
// the targets without conditions. Among the rest, a request with a session uses weighted rendezvous hashing:
// each target gets the score -ln(u)/weight, with u in (0,1) from the hash of alias, tenant, session and model,
// and the lowest score wins. The score of a target depends only on its own weight, so a greater weight takes
// sessions from the others and moves none between them. A request without a session is distributed by weight.
package modelroute

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/spillway-lb/spillway/internal/spec"
)

// ModelQuery holds the properties of a request that determine its model.
type ModelQuery struct {
	// Model is the requested model or alias.
	Model string
	// Pin is the target that the client insists on; empty for none.
	Pin string
	// Tenant is the tenant of the request.
	Tenant string
	// Session and User are the header X-Session-Id and the body's user, Client the client's address. Empty:
	// unknown.
	Session, User, Client string
	// Header holds the headers of the request in canonical form, for conditions.
	Header map[string][]string
	// Chance in [0,1) decides if the request has no sticky key.
	Chance float64
}

// ResolvedModel is the model of a request, and the rule that chose it.
type ResolvedModel struct {
	// Model is its name.
	Model string
	// Rule is one of the Rule constants.
	Rule string
	// Target is the target of the alias; nil if a model was requested by its own name.
	Target *spec.AliasTarget

	requestedName string
	totalWeight   float64 // sum of the weights of the candidates
	stickyBy      string  // the name of the sticky key
}

// The rules that choose a model.
const (
	RuleName      = "name"      // requested by its own name
	RulePin       = "pin"       // the client insists on it
	RuleCondition = "condition" // the request meets its conditions
	RuleWeight    = "weight"    // its weight among the targets without conditions
)

// ErrUnknownModel means that the name is neither a model nor an alias.
var ErrUnknownModel = errors.New("neither a model nor an alias")

// NotATargetError refuses a pin.
type NotATargetError struct {
	// Model is the requested alias, Pin the model that is not one of its targets.
	Model, Pin string
	// Targets are the allowed pins.
	Targets []string
}

// Error names the allowed targets.
func (e *NotATargetError) Error() string {
	pin := e.Pin
	if len(pin) > 128 {
		pin = pin[:128] + "..."
	}
	return fmt.Sprintf("%q is no target of %q; its targets: %s", pin, e.Model, strings.Join(e.Targets, ", "))
}

// ResolveModel determines the model of a request. The error is ErrUnknownModel or a *NotATargetError. Otherwise
// it does not allocate.
func ResolveModel(s *spec.Spec, q *ModelQuery) (ResolvedModel, error) {
	a := s.FindAlias(q.Model)
	if a == nil || s.FindModel(q.Model) != nil {
		return resolveName(s, q)
	}
	if q.Pin != "" {
		return resolvePin(a, q)
	}
	c := targetChoice{alias: a, query: q}
	c.conditional = c.anyConditionMet()
	key, by := q.stickyKey(a.Sticky)
	if by == "" {
		return c.drawByWeight()
	}
	return c.chooseByHash(key, by)
}

func resolveName(s *spec.Spec, q *ModelQuery) (ResolvedModel, error) {
	switch {
	case s.FindModel(q.Model) == nil:
		return ResolvedModel{}, ErrUnknownModel
	case q.Pin != "" && q.Pin != q.Model:
		return ResolvedModel{}, &NotATargetError{Model: q.Model, Pin: q.Pin, Targets: []string{q.Model}}
	}
	return ResolvedModel{Model: q.Model, Rule: RuleName, requestedName: q.Model}, nil
}

func resolvePin(a *spec.Alias, q *ModelQuery) (ResolvedModel, error) {
	for i := range a.Targets {
		if t := &a.Targets[i]; t.Model == q.Pin {
			return ResolvedModel{Model: t.Model, Rule: RulePin, Target: t, requestedName: q.Model}, nil
		}
	}
	e := &NotATargetError{Model: q.Model, Pin: q.Pin}
	seen := map[string]bool{}
	for i := range a.Targets {
		if m := a.Targets[i].Model; !seen[m] {
			seen[m] = true
			e.Targets = append(e.Targets, m)
		}
	}
	return ResolvedModel{}, e
}

// stickyKey returns the sticky key of the request and its name; an empty name means none.
func (q *ModelQuery) stickyKey(sticky string) (key uint64, by string) {
	if sticky == spec.StickyNone {
		return 0, ""
	}
	h := mixBits(xxhash.Sum64String(q.Tenant))
	switch {
	case sticky == spec.StickyTenant:
		return h, "tenant"
	case q.Session != "":
		return mixBits(h ^ xxhash.Sum64String(q.Session)), "session"
	case q.User != "":
		return mixBits(h ^ 1 ^ xxhash.Sum64String(q.User)), "user"
	case sticky == spec.StickyClient && q.Client != "":
		return mixBits(h ^ 2 ^ xxhash.Sum64String(q.Client)), "client address"
	}
	return 0, ""
}

// mixBits spreads every bit over all bits (the finalizer of splitmix64).
func mixBits(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// toUnitInterval maps a hash to a number in (0,1).
func toUnitInterval(h uint64) float64 { return (float64(h>>11) + 0.5) / (1 << 53) }

// targetChoice is one choice among the targets of an alias.
type targetChoice struct {
	alias       *spec.Alias
	query       *ModelQuery
	conditional bool // only targets with met conditions are candidates
}

func (c *targetChoice) anyConditionMet() bool {
	for i := range c.alias.Targets {
		if t := &c.alias.Targets[i]; t.Weight > 0 && t.When.HasConditions() && c.meetsConditions(t) {
			return true
		}
	}
	return false
}

// isCandidate reports whether a target may be chosen.
func (c *targetChoice) isCandidate(t *spec.AliasTarget) bool {
	if !(t.Weight > 0) {
		return false
	}
	if c.conditional {
		return t.When.HasConditions() && c.meetsConditions(t)
	}
	return !t.When.HasConditions()
}

func (c *targetChoice) totalWeight() (sum float64) {
	for i := range c.alias.Targets {
		if t := &c.alias.Targets[i]; c.isCandidate(t) {
			sum += t.Weight
		}
	}
	return sum
}

func (c *targetChoice) resolveTo(t *spec.AliasTarget, by string) (ResolvedModel, error) {
	if t == nil {
		return ResolvedModel{}, ErrUnknownModel // validation excludes such aliases
	}
	rule := RuleWeight
	if c.conditional {
		rule = RuleCondition
	}
	return ResolvedModel{Model: t.Model, Rule: rule, Target: t, requestedName: c.alias.Name, totalWeight: c.totalWeight(), stickyBy: by}, nil
}

// drawByWeight chooses by weight alone.
func (c *targetChoice) drawByWeight() (ResolvedModel, error) {
	at := c.query.Chance * c.totalWeight()
	var last *spec.AliasTarget
	for i := range c.alias.Targets {
		t := &c.alias.Targets[i]
		if !c.isCandidate(t) {
			continue
		}
		if last = t; at < t.Weight {
			break
		}
		at -= t.Weight
	}
	return c.resolveTo(last, "")
}

// chooseByHash chooses the target of a key.
func (c *targetChoice) chooseByHash(key uint64, by string) (ResolvedModel, error) {
	key = mixBits(key ^ xxhash.Sum64String(c.alias.Name))
	var best *spec.AliasTarget
	least := math.Inf(1)
	for i := range c.alias.Targets {
		t := &c.alias.Targets[i]
		if !c.isCandidate(t) {
			continue
		}
		// A second target of the same model, with other conditions, gets its own hash.
		h := mixBits(key^xxhash.Sum64String(t.Model)) + uint64(c.countEarlierSameModel(i))*0x9e3779b97f4a7c15
		if score := -math.Log(toUnitInterval(mixBits(h))) / t.Weight; best == nil || score < least {
			best, least = t, score
		}
	}
	return c.resolveTo(best, by)
}

// countEarlierSameModel counts the candidates of the same model before target i.
func (c *targetChoice) countEarlierSameModel(i int) (n int) {
	for j := range i {
		if t := &c.alias.Targets[j]; t.Model == c.alias.Targets[i].Model && c.isCandidate(t) {
			n++
		}
	}
	return n
}

// ExplainRule describes the rule for people.
func (a *ResolvedModel) ExplainRule() string {
	switch a.Rule {
	case RuleName:
		return a.Model + " is a model and was asked for by its own name"
	case RulePin:
		return fmt.Sprintf("%s is an alias: pinned to its target %s by the caller (rule: pin)", a.requestedName, a.Model)
	case RuleCondition:
		return fmt.Sprintf("%s is an alias: target %s, for %s; weight %v of %v, %s (rule: condition)", a.requestedName, a.Model, a.Target.When.String(), a.Target.Weight, a.totalWeight, a.explainSticky())
	case RuleWeight:
		return fmt.Sprintf("%s is an alias: target %s by weight %v of %v, %s (rule: weight)", a.requestedName, a.Model, a.Target.Weight, a.totalWeight, a.explainSticky())
	}
	return ""
}

func (a *ResolvedModel) explainSticky() string {
	if a.stickyBy == "" {
		return "by chance, this time: nothing keeps the request to a target"
	}
	return "kept there by its " + a.stickyBy
}

// meetsConditions reports whether the request meets all conditions of a target.
func (c *targetChoice) meetsConditions(t *spec.AliasTarget) bool {
	w := &t.When
	return (w.Header.Name == "" || hasHeader(c.query.Header, &w.Header)) &&
		(len(w.Tenants) == 0 || slices.Contains(w.Tenants, c.query.Tenant)) &&
		(w.Cohort == 0 || isInCohort(c.alias.Name, c.query.Tenant, w.Cohort))
}

// isInCohort reports whether a tenant is in an alias's cohort of percent. Cohorts of different aliases are
// independent.
func isInCohort(alias, tenant string, percent float64) bool {
	h := mixBits(mixBits(xxhash.Sum64String(alias)) ^ xxhash.Sum64String(tenant))
	return 100*toUnitInterval(h) < percent
}

// hasHeader looks up a header ignoring case, for any spelling in the spec.
func hasHeader(h map[string][]string, want *spec.HeaderCondition) bool {
	lines, ok := h[want.Name]
	if !ok {
		for name, l := range h {
			if strings.EqualFold(name, want.Name) {
				lines = l
				break
			}
		}
	}
	return len(lines) > 0 && (want.Value == "" || slices.Contains(lines, want.Value))
}

// FallbackModels returns the models that may answer a request of a tenant instead of m, the nearest first: m's
// fallback, that model's own fallback and so on, as far as the tenant allows fallbacks and may use the model by
// name. A nil tenant or model has none.
func FallbackModels(s *spec.Spec, t *spec.Tenant, m *spec.Model) iter.Seq[*spec.Model] {
	return func(yield func(*spec.Model) bool) {
		if t == nil || !t.Fallback {
			return
		}
		for range s.Models { // the chains of a validated spec end; a hand-made one might be cyclic
			if m == nil || m.Fallback == "" {
				return
			}
			if m = s.FindModel(m.Fallback); m == nil || t.MayUseModel(m.Name, m.Name) && !yield(m) {
				return
			}
		}
	}
}

// FindPool returns the first pool that a request matches, and its bit; nil and 0 if the request goes to workers
// outside pools.
func FindPool(s *spec.Spec, tenant, model string, c spec.Class) (p *spec.WorkerPool, bit uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		p := &s.Pools[i]
		if emptyOrContains(p.Tenants, tenant) && emptyOrContains(p.Models, model) && emptyOrContains(p.Classes, c) {
			return p, 1 << i
		}
	}
	return nil, 0
}

func emptyOrContains[T comparable](list []T, x T) bool {
	return len(list) == 0 || slices.Contains(list, x)
}

// PoolsForModel yields the pools whose requests may be for a model, by name, with their bits.
func PoolsForModel(s *spec.Spec, model string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
			if p := &s.Pools[i]; emptyOrContains(p.Models, model) && !yield(p.Name, 1<<i) {
				return
			}
		}
	}
}

// PoolsForLabels returns the pools of a worker with these labels, as bits; 0 if it is in none.
func PoolsForLabels(s *spec.Spec, labels map[string]string) (bits uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if hasLabels(labels, s.Pools[i].Labels) {
			bits |= 1 << i
		}
	}
	return bits
}

// IsDedicated reports whether a worker in these pools is no general capacity for a model: each of its pools
// that matches requests of the model is restricted to certain tenants.
func IsDedicated(s *spec.Spec, pools uint64, model string) bool {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if p := &s.Pools[i]; pools&(1<<i) != 0 && len(p.Tenants) == 0 && emptyOrContains(p.Models, model) {
			return false
		}
	}
	return pools != 0
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return len(want) > 0
}
