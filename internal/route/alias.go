package route

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Ask is what a request says, as far as it matters for which model answers it.
type Ask struct {
	// Model is what was asked for: a model or an alias.
	Model string
	// Pin is the target that the caller insists on; empty for none.
	Pin string
	// Tenant who asks.
	Tenant string
	// Session and User are the header X-Session-Id and the body's user, Client the caller's address. Empty: not known.
	Session, User, Client string
	// Header holds the request's headers in canonical form, for conditions.
	Header map[string][]string
	// Chance in [0,1) decides where nothing keeps a request to its target.
	Chance float64
}

// Answer is the model that a request goes to, and by which rule.
type Answer struct {
	// Model is its name.
	Model string
	// Rule is one of the Rule words.
	Rule string
	// Target is the alias's target; nil when a model was asked for by its own name.
	Target *spec.Target

	asked string
	total float64 // of the weights that it was chosen among
	by    string  // what keeps it there
}

// The rules that choose a model.
const (
	RuleName      = "name"      // it was asked for by its own name
	RulePin       = "pin"       // the caller insists on it
	RuleCondition = "condition" // the request meets its conditions
	RuleWeight    = "weight"    // its weight among the targets without conditions
)

// ErrUnknown says that the name is neither a model's nor an alias's.
var ErrUnknown = errors.New("neither a model nor an alias")

// NotATarget refuses a pin.
type NotATarget struct {
	// Model is what was asked for, Pin what it cannot be pinned to.
	Model, Pin string
	// Targets are what it can be pinned to.
	Targets []string
}

// Error says what to write instead.
func (e *NotATarget) Error() string {
	pin := e.Pin
	if len(pin) > 128 {
		pin = pin[:128] + "..."
	}
	return fmt.Sprintf("%q is no target of %q; its targets: %s", pin, e.Model, strings.Join(e.Targets, ", "))
}

// Resolve finds the model for a request. The error is ErrUnknown or a *NotATarget. It allocates nothing otherwise.
func Resolve(s *spec.Spec, q *Ask) (Answer, error) {
	a := s.AliasNamed(q.Model)
	if a == nil || s.ModelNamed(q.Model) != nil {
		return named(s, q)
	}
	if q.Pin != "" {
		return pinned(a, q)
	}
	c := contest{alias: a, ask: q}
	c.conditional = c.anyMeets()
	key, by := q.key(a.Sticky)
	if by == "" {
		return c.draw()
	}
	return c.rendezvous(key, by)
}

func named(s *spec.Spec, q *Ask) (Answer, error) {
	switch {
	case s.ModelNamed(q.Model) == nil:
		return Answer{}, ErrUnknown
	case q.Pin != "" && q.Pin != q.Model:
		return Answer{}, &NotATarget{Model: q.Model, Pin: q.Pin, Targets: []string{q.Model}}
	}
	return Answer{Model: q.Model, Rule: RuleName, asked: q.Model}, nil
}

func pinned(a *spec.Alias, q *Ask) (Answer, error) {
	for i := range a.Targets {
		if t := &a.Targets[i]; t.Model == q.Pin {
			return Answer{Model: t.Model, Rule: RulePin, Target: t, asked: q.Model}, nil
		}
	}
	e := &NotATarget{Model: q.Model, Pin: q.Pin}
	seen := map[string]bool{}
	for i := range a.Targets {
		if m := a.Targets[i].Model; !seen[m] {
			seen[m] = true
			e.Targets = append(e.Targets, m)
		}
	}
	return Answer{}, e
}

// key is what the request is kept together by, and its name; an empty name means nothing.
func (q *Ask) key(sticky string) (key uint64, by string) {
	if sticky == spec.StickyNone {
		return 0, ""
	}
	h := mix(xxhash.Sum64String(q.Tenant))
	switch {
	case sticky == spec.StickyTenant:
		return h, "tenant"
	case q.Session != "":
		return mix(h ^ xxhash.Sum64String(q.Session)), "session"
	case q.User != "":
		return mix(h ^ 1 ^ xxhash.Sum64String(q.User)), "user"
	case sticky == spec.StickyClient && q.Client != "":
		return mix(h ^ 2 ^ xxhash.Sum64String(q.Client)), "client address"
	}
	return 0, ""
}

// mix spreads every bit over all (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is a hash as a number above 0 and below 1.
func unit(h uint64) float64 { return (float64(h>>11) + 0.5) / (1 << 53) }

// contest is one choice among an alias's targets.
type contest struct {
	alias       *spec.Alias
	ask         *Ask
	conditional bool // only targets whose conditions are met are in it
}

func (c *contest) anyMeets() bool {
	for i := range c.alias.Targets {
		if t := &c.alias.Targets[i]; t.Weight > 0 && t.When.Any() && c.meets(t) {
			return true
		}
	}
	return false
}

// in says whether a target may be chosen.
func (c *contest) in(t *spec.Target) bool {
	if !(t.Weight > 0) {
		return false
	}
	if c.conditional {
		return t.When.Any() && c.meets(t)
	}
	return !t.When.Any()
}

func (c *contest) total() (sum float64) {
	for i := range c.alias.Targets {
		if t := &c.alias.Targets[i]; c.in(t) {
			sum += t.Weight
		}
	}
	return sum
}

func (c *contest) won(t *spec.Target, by string) (Answer, error) {
	if t == nil {
		return Answer{}, ErrUnknown // validation leaves no such alias
	}
	rule := RuleWeight
	if c.conditional {
		rule = RuleCondition
	}
	return Answer{Model: t.Model, Rule: rule, Target: t, asked: c.alias.Name, total: c.total(), by: by}, nil
}

// draw goes by weight alone.
func (c *contest) draw() (Answer, error) {
	at := c.ask.Chance * c.total()
	var last *spec.Target
	for i := range c.alias.Targets {
		t := &c.alias.Targets[i]
		if !c.in(t) {
			continue
		}
		if last = t; at < t.Weight {
			break
		}
		at -= t.Weight
	}
	return c.won(last, "")
}

// rendezvous keeps a key to its target.
func (c *contest) rendezvous(key uint64, by string) (Answer, error) {
	key = mix(key ^ xxhash.Sum64String(c.alias.Name))
	var best *spec.Target
	least := math.Inf(1)
	for i := range c.alias.Targets {
		t := &c.alias.Targets[i]
		if !c.in(t) {
			continue
		}
		// A second target of the same model, with other conditions, draws a number of its own.
		h := mix(key^xxhash.Sum64String(t.Model)) + uint64(c.before(i))*0x9e3779b97f4a7c15
		if score := -math.Log(unit(mix(h))) / t.Weight; best == nil || score < least {
			best, least = t, score
		}
	}
	return c.won(best, by)
}

// before counts the targets of the same model that stand before target i and are in the contest too.
func (c *contest) before(i int) (n int) {
	for j := range i {
		if t := &c.alias.Targets[j]; t.Model == c.alias.Targets[i].Model && c.in(t) {
			n++
		}
	}
	return n
}

// Why is the rule in words, for people.
func (a *Answer) Why() string {
	switch a.Rule {
	case RuleName:
		return a.Model + " is a model and was asked for by its own name"
	case RulePin:
		return fmt.Sprintf("%s is an alias: pinned to its target %s by the caller (rule: pin)", a.asked, a.Model)
	case RuleCondition:
		return fmt.Sprintf("%s is an alias: target %s, for %s; weight %v of %v, %s (rule: condition)", a.asked, a.Model, a.Target.When.String(), a.Target.Weight, a.total, a.kept())
	case RuleWeight:
		return fmt.Sprintf("%s is an alias: target %s by weight %v of %v, %s (rule: weight)", a.asked, a.Model, a.Target.Weight, a.total, a.kept())
	}
	return ""
}

func (a *Answer) kept() string {
	if a.by == "" {
		return "by chance, this time: nothing keeps the request to a target"
	}
	return "kept there by its " + a.by
}
