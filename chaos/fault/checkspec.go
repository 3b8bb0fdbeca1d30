package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CheckSpec reports what is wrong with a Spec on its own, without its fleet: the error names the valid kinds, parameters,
// bounds or scopes.
func CheckSpec(s Spec) error {
	if !isID(s.ID) {
		return fmt.Errorf("fault id %q: use 1 to 64 letters, digits, dots, hyphens and underscores", s.ID)
	}
	in, ok := FindKind(s.Kind)
	if !ok {
		return fmt.Errorf("unknown fault %q: use one of %s", s.Kind, strings.Join(kindNames(), ", "))
	}
	if s.Lease < MinLease || s.Lease > MaxLease {
		return fmt.Errorf("%s: a lease of %s: use %s to %s", s.Kind, s.Lease, MinLease, MaxLease)
	}
	if err := in.checkScope(s.Target); err != nil {
		return err
	}
	for name, text := range s.Params {
		p, ok := in.findParam(name)
		if !ok {
			return fmt.Errorf("%s has no parameter %q: %s", s.Kind, name, in.listParams())
		}
		if err := p.checkValue(text); err != nil {
			return fmt.Errorf("%s: %w", s.Kind, err)
		}
	}
	for _, p := range in.Params {
		if s.Params[p.Name] == "" && p.Required {
			return fmt.Errorf("%s needs %s: %s", s.Kind, p.Name, p.describe())
		}
	}
	return nil
}

func isID(id string) bool {
	if len(id) < 1 || len(id) > 64 || id[0] == '.' {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

func kindNames() (out []string) {
	for _, in := range catalog {
		out = append(out, string(in.Kind))
	}
	return out
}

func (in Info) checkScope(t Target) error {
	set := t.listScopes()
	if len(in.Scopes) == 0 {
		if len(set) > 0 {
			return fmt.Errorf("%s has no target: leave it empty", in.Kind)
		}
		return nil
	}
	names := make([]string, len(in.Scopes))
	for i, s := range in.Scopes {
		names[i] = string(s)
	}
	if len(set) != 1 {
		return fmt.Errorf("%s needs exactly one target of %s, and has %d", in.Kind, strings.Join(names, ", "), len(set))
	}
	for s := range set {
		if !slices.Contains(in.Scopes, s) {
			return fmt.Errorf("%s cannot be aimed at a %s: use %s", in.Kind, s, strings.Join(names, ", "))
		}
	}
	return nil
}

func (in Info) findParam(name string) (Param, bool) {
	i := slices.IndexFunc(in.Params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return Param{}, false
	}
	return in.Params[i], true
}

func (in Info) listParams() string {
	if len(in.Params) == 0 {
		return "it has none"
	}
	var out []string
	for _, p := range in.Params {
		out = append(out, p.Name)
	}
	return "use " + strings.Join(out, ", ")
}

// param returns a parameter's text: its own, or the default.
func (in Info) param(s Spec, name string) string {
	if v := s.Params[name]; v != "" {
		return v
	}
	p, _ := in.findParam(name)
	return p.Default
}

// describe returns the form of a parameter's value.
func (p Param) describe() string {
	switch {
	case strings.Contains(p.Unit, "|"):
		return "one of " + strings.ReplaceAll(p.Unit, "|", ", ")
	case p.Min != "" && p.Unit == "duration":
		return fmt.Sprintf("a duration from %s to %s", p.Min, p.Max)
	case p.Min != "":
		return fmt.Sprintf("a number from %s to %s (%s)", p.Min, p.Max, p.Unit)
	}
	return "a text: " + p.Summary
}

// maxText bounds a parameter of the unit text.
const maxText = 256

func (p Param) checkValue(text string) error {
	bad := fmt.Errorf("%s %q: use %s", p.Name, text, p.describe())
	switch {
	case strings.Contains(p.Unit, "|"):
		if !slices.Contains(strings.Split(p.Unit, "|"), text) {
			return bad
		}
	case p.Unit == "duration":
		d, err := time.ParseDuration(text)
		low, _ := time.ParseDuration(p.Min)
		high, _ := time.ParseDuration(p.Max)
		if err != nil || d < low || d > high {
			return bad
		}
	case p.Unit == "text":
		if len(text) > maxText {
			return fmt.Errorf("%s has %d bytes: use at most %d", p.Name, len(text), maxText)
		}
	default:
		v, err := strconv.ParseFloat(text, 64)
		low, _ := strconv.ParseFloat(p.Min, 64)
		high, _ := strconv.ParseFloat(p.Max, 64)
		if err != nil || !(v >= low && v <= high) || p.Unit == "count" && v != float64(int64(v)) {
			return bad
		}
	}
	return nil
}
