package drill

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Tenants of the load.
const (
	mainTenant  = "acme"
	batchTenant = "nightly"
)

// Layout is the drill's fleet as files of a fleet have it.
func (f *DrillFile) Layout() fleet.Layout {
	l, s := fleet.DefaultLayout(), &f.Fleet
	for _, x := range []struct {
		field *int
		own   int
	}{{&l.Regions, s.Regions}, {&l.Zones, s.Zones}, {&l.Workers, s.Workers}, {&l.Gateways, s.Gateways}, {&l.Locals, s.Locals}, {&l.Globals, s.Globals}} {
		if x.own > 0 {
			*x.field = x.own
		}
	}
	return l
}

// RegionNames lists the regions of the drill's fleet.
func (f *DrillFile) RegionNames() (out []string) {
	for _, s := range fleet.AllSites()[:f.Layout().Regions] {
		out = append(out, s.Name)
	}
	return out
}

// checkFile checks what needs the whole file.
func (p *fileParser) checkFile() {
	f := &p.file
	for _, need := range []struct{ word, example string }{
		{"drill", "drill region-loss"},
		{"title", "title A region is lost"},
		{"hypothesis", "hypothesis Clients are answered elsewhere within 5 s."},
		{"load", "load 12 requests/s for 90 s, warm-up 20 s, prompts 600 tokens, answers 80 tokens"},
		{"at", "at 30 s for 20 s region_dead region frankfurt"},
	} {
		if _, ok := p.seen[need.word]; !ok {
			p.text.report(fileSpan{}, `the file has no "`+need.word+`"`, "add a line such as: "+need.example)
		}
	}
	for word, n := range map[string]int{"at": len(f.Steps) - maxSteps, "hypothesis": len(f.Hypothesis) - maxListed, "during": len(f.Conditions) - maxListed, "control": len(f.Controls) - maxListed, "rto": len(f.Objectives) - maxListed, "stop": len(f.Stops) - maxListed, "page": len(f.Pages) - maxListed} {
		if n > 0 {
			p.text.report(p.seen[word], "there are too many statements of this kind", "remove "+strconv.Itoa(n))
		}
	}
	p.checkLoad()
	for i := range f.Steps {
		p.checkStep(&f.Steps[i])
	}
	if at, ok := p.seen["runbook"]; ok && f.Runbook != "" && (path.IsAbs(f.Runbook) || path.Clean(f.Runbook) != f.Runbook || strings.HasPrefix(f.Runbook, "..")) {
		p.text.report(at, "the runbook is not a path in the repository", "write it from the root, such as deploy/runbooks/lost-quorum.md")
	}
}

func (p *fileParser) checkLoad() {
	at, ok := p.seen["load"]
	l := &p.file.Load
	switch {
	case !ok:
		return
	case l.Rate == 0 || l.Duration == 0:
		p.text.report(at, "the load has no rate", "write a part such as 12 requests/s for 90 s")
	case l.PromptTokens == 0 || l.AnswerTokens == 0:
		p.text.report(at, "the load has no lengths", "write parts such as prompts 600 tokens, answers 80 tokens")
	case l.WarmUp >= l.Duration:
		p.text.report(at, "the warm-up is as long as the load", "use a shorter one")
	case l.PrefixTokens >= l.PromptTokens:
		p.text.report(at, "the prefixes are as long as the prompts", "use shorter ones, or longer prompts")
	}
}

// checkStep checks a step against the fleet and the load.
func (p *fileParser) checkStep(s *Step) {
	l := &p.file.Load
	switch {
	case l.Duration == 0:
		return
	case s.At < l.WarmUp+minBefore:
		p.text.report(s.at, "the fault begins in the warm-up or just after it", "begin at "+formatTime(l.WarmUp+minBefore)+" or later, so that there is a steady state to compare with")
	case s.End() > l.Duration-minAfter:
		p.text.report(s.at, "the fault ends too late, at "+formatTime(s.End()), "shorten it, or send requests for "+formatTime(s.End()+minAfter)+" or longer, so that the recovery is measured")
	}
	p.checkTarget(s)
}

// minBefore is the shortest steady state before the first fault.
const minBefore = 5 * time.Second

// minAfter is the shortest time of the load after the last fault.
const minAfter = 5 * time.Second

// checkTarget checks that the fleet has what a step is aimed at.
func (p *fileParser) checkTarget(s *Step) {
	var known []string
	switch s.Scope {
	case fault.ScopeRegion:
		known = p.file.RegionNames()
	case ScopeTenant:
		if s.Target == batchTenant && p.file.Load.Nightly == 0 {
			p.text.report(s.at, "the load has no requests of tenant "+batchTenant, "add a part to the load, such as: nightly 30 %")
			return
		}
		known = []string{mainTenant, batchTenant}
	case fault.ScopeZone, fault.ScopeWorker, fault.ScopeNode:
		known = p.file.listTargets(s.Scope)
	default:
		return
	}
	if matchesAny(s.Target, known) {
		return
	}
	hint := strict.SuggestName(s.Target, known, string(s.Scope)+"s of this fleet")
	p.text.report(s.at, "the fleet has no "+string(s.Scope)+` "`+s.Target+`"`, hint)
}

// listTargets lists the names of a scope in the drill's fleet.
func (f *DrillFile) listTargets(scope fault.Scope) (out []string) {
	if scope == fault.ScopeNode {
		out = append(out, "leader")
	}
	for _, n := range f.Layout().BuildNodes() {
		name := ""
		switch {
		case scope == fault.ScopeWorker && n.Role == "worker", scope == fault.ScopeNode:
			name = n.ID()
		case scope == fault.ScopeZone && n.Role == "local":
			name = n.Region + "/" + n.Zone
		}
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// MatchTargets lists the names that a target with * matches.
func MatchTargets(target string, names []string) (out []string) {
	for _, n := range names {
		if ok, err := path.Match(strings.ReplaceAll(target, "/", "\x00"), strings.ReplaceAll(n, "/", "\x00")); err == nil && ok {
			out = append(out, n)
		}
	}
	return out
}

func matchesAny(target string, names []string) bool { return len(MatchTargets(target, names)) > 0 }

// checkSlice checks the name of a slice. The fleet statement stands above those that use it.
func (p *fileParser) checkSlice(s Slice, at fileSpan) bool {
	known, name, noun := p.file.RegionNames(), s.Region, "region"
	if s.Tenant != "" {
		known, name, noun = []string{mainTenant, batchTenant}, s.Tenant, "tenant"
	}
	if slices.Contains(known, name) {
		return true
	}
	p.text.report(at, "the fleet has no "+noun+` "`+name+`"`, strict.SuggestName(name, known, noun+"s"))
	return false
}
