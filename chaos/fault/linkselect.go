package fault

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// linkVictim is a link that a fault injures, and which of its directions.
type linkVictim struct {
	link          string
	forward, back bool
}

// allGlobals is the value of Param from that stands for all global nodes, as in chaos/sim.
const allGlobals = "global"

// selectLinks returns the links and directions that a checked Spec injures. It is pure.
func selectLinks(l fleet.Layout, links []fleet.Link, s Spec) ([]linkVictim, error) {
	in, _ := FindKind(s.Kind)
	fields := nodeSets(l)
	from := in.param(s, "from")
	var other map[string]bool
	if from != "" {
		if other = fields[from]; other == nil {
			return nil, fmt.Errorf("%s: from %q is no node, zone, region or %q: use one of %s", s.Kind, from, allGlobals, listNames(fields))
		}
	}
	classes, err := parseClasses(in.param(s, "class"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Kind, err)
	}
	inside, err := targetSet(l, fields, s, from == allGlobals)
	if err != nil {
		return nil, err
	}
	var out []linkVictim
	for _, k := range links {
		if len(classes) > 0 && !slices.Contains(classes, k.Class) {
			continue
		}
		towards := true // whether forward is toward the target
		if s.Target.Link != "" {
			if !matchName(s.Target.Link, k.Name) || other != nil && !other[k.From] && !other[k.To] {
				continue
			}
		} else {
			if inside[k.From] == inside[k.To] {
				continue
			}
			towards = inside[k.To]
			if far := pickString(towards, k.From, k.To); other != nil && !other[far] {
				continue
			}
		}
		v := linkVictim{link: k.Name}
		switch in.param(s, "direction") {
		case DirectionForward:
			v.forward = true
		case DirectionBack:
			v.back = true
		case DirectionIn:
			v.forward, v.back = towards, !towards
		case DirectionOut:
			v.forward, v.back = !towards, towards
		default:
			v.forward, v.back = true, true
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no link matches %s: links are named like %s", s.Kind, describeTarget(s), exampleLinks(links))
	}
	return out, nil
}

func pickString(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// nodeSets maps the name of every node, zone (REGION/ZONE) and region, and allGlobals, to the IDs of its nodes.
func nodeSets(l fleet.Layout) map[string]map[string]bool {
	sets := map[string]map[string]bool{}
	add := func(name, id string) {
		if sets[name] == nil {
			sets[name] = map[string]bool{}
		}
		sets[name][id] = true
	}
	for _, n := range l.BuildNodes() {
		add(n.ID(), n.ID())
		add(l.SiteOf(n), n.ID())
		if n.Zone != "" {
			add(n.Region+"/"+n.Zone, n.ID())
		}
		if n.Role == "global" {
			add(allGlobals, n.ID())
		}
	}
	return sets
}

// targetSet returns the nodes of a target. A region has the global nodes there too, unless it is disconnected from those.
func targetSet(l fleet.Layout, sets map[string]map[string]bool, s Spec, withoutGlobals bool) (map[string]bool, error) {
	t := s.Target
	switch {
	case t.Link != "":
		return nil, nil
	case t.Worker != "":
		out := map[string]bool{}
		for _, n := range l.BuildNodes() {
			if n.Role == "worker" && matchName(t.Worker, n.ID()) {
				out[n.ID()] = true
			}
		}
		if len(out) == 0 {
			return nil, unknownTarget(s.Kind, ScopeWorker, t.Worker, l)
		}
		return out, nil
	case t.Region != "" && !slices.ContainsFunc(fleet.AllSites()[:l.Regions], func(x fleet.Site) bool { return x.Name == t.Region }):
		return nil, unknownTarget(s.Kind, ScopeRegion, t.Region, l)
	}
	name := t.Node + t.Region + t.Zone
	out := sets[name]
	if out == nil || t.Zone != "" && !strings.Contains(name, "/") {
		scope := ScopeNode
		if t.Zone != "" {
			scope = ScopeZone
		}
		return nil, unknownTarget(s.Kind, scope, name, l)
	}
	if t.Region != "" && withoutGlobals {
		kept := map[string]bool{}
		for id := range out {
			if !sets[allGlobals][id] {
				kept[id] = true
			}
		}
		out = kept
	}
	return out, nil
}

// unknownTarget is the error for a target that the fleet does not have: it lists those that it has.
func unknownTarget(k Kind, scope Scope, name string, l fleet.Layout) error {
	var have []string
	for _, n := range l.BuildNodes() {
		switch {
		case scope == ScopeWorker && n.Role == "worker", scope == ScopeNode && n.Role != "worker":
			have = append(have, n.ID())
		case scope == ScopeRegion && n.Region != "":
			have = append(have, n.Region)
		case scope == ScopeZone && n.Zone != "":
			have = append(have, n.Region+"/"+n.Zone)
		}
	}
	slices.Sort(have)
	return fmt.Errorf("%s: the fleet has no %s %q: use one of %s", k, scope, name, joinSome(slices.Compact(have)))
}

// joinSome joins names, of which a text shows at most twenty.
func joinSome(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func listNames(sets map[string]map[string]bool) string {
	var names []string
	for n := range sets {
		names = append(names, n)
	}
	slices.Sort(names)
	return joinSome(names)
}

// matchName reports whether a name matches a pattern, in which "*" stands for any text.
func matchName(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// linkClasses are the classes of links.
var linkClasses = []string{"raft", "uplink", "peer", "http", "worker"}

func parseClasses(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	out := strings.Split(text, "+")
	for _, c := range out {
		if !slices.Contains(linkClasses, c) {
			return nil, fmt.Errorf("class %q: use one or more of %s with + between them", c, strings.Join(linkClasses, ", "))
		}
	}
	return out, nil
}

func describeTarget(s Spec) string {
	var out []string
	for scope, v := range s.Target.listScopes() {
		out = append(out, fmt.Sprintf("%s %q", scope, v))
	}
	for _, p := range []string{"class", "from"} {
		if v := s.Params[p]; v != "" {
			out = append(out, p+" "+v)
		}
	}
	return strings.Join(out, ", ")
}

func exampleLinks(links []fleet.Link) string {
	var out []string
	seen := map[string]bool{}
	for _, k := range links {
		if !seen[k.Class] {
			seen[k.Class] = true
			out = append(out, k.Name)
		}
	}
	return strings.Join(out, ", ")
}
