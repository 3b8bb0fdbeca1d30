package drill

import (
	"slices"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// Kinds of steps in addition to the faults of package fault.
const (
	// DrainKind drains a region, zone or worker, as an operator does.
	DrainKind fault.Kind = "drain"
	// SurgeKind multiplies the load of a tenant.
	SurgeKind fault.Kind = "surge"
	// DNSPartition keeps the resolvers of a region from the global nodes elsewhere.
	DNSPartition fault.Kind = "dns_partition"
)

// ScopeTenant is the scope of SurgeKind.
const ScopeTenant fault.Scope = "tenant"

var ownKinds = []fault.Info{
	{Kind: DrainKind, Summary: "drains as an operator does, and ends the drain", Params: []fault.Param{{Name: "over", Summary: "time in which traffic leaves", Unit: "duration", Default: "0s", Min: "0s", Max: "10m"}}, Scopes: []fault.Scope{fault.ScopeRegion, fault.ScopeZone, fault.ScopeWorker}, CanVerify: true},
	{Kind: SurgeKind, Summary: "multiplies the load of a tenant", Params: []fault.Param{{Name: "factor", Summary: "of its rate", Unit: "factor", Default: "4", Min: "1.1", Max: "100"}}, Scopes: []fault.Scope{ScopeTenant}, CanVerify: true},
	{Kind: DNSPartition, Summary: "keeps the resolvers of a region from the global nodes elsewhere", Scopes: []fault.Scope{fault.ScopeRegion}, CanVerify: true},
}

// StepKinds lists every kind of step that a file may name.
func StepKinds() []fault.Info { return append(fault.Kinds(), ownKinds...) }

func findStepKind(k fault.Kind) (fault.Info, bool) {
	all := StepKinds()
	i := slices.IndexFunc(all, func(in fault.Info) bool { return in.Kind == k })
	if i < 0 {
		return fault.Info{}, false
	}
	return all[i], true
}

func stepKindNames() (out []string) {
	for _, in := range StepKinds() {
		out = append(out, string(in.Kind))
	}
	return out
}

// IsOwnKind reports whether a kind is injected by the drill itself, not by package fault.
func IsOwnKind(k fault.Kind) bool {
	return slices.ContainsFunc(ownKinds, func(in fault.Info) bool { return in.Kind == k })
}

// Spec is the step as package fault takes it.
func (s *Step) Spec(id string) fault.Spec {
	out := fault.Spec{ID: id, Kind: s.Kind, Params: s.Params, Lease: s.For}
	switch s.Scope {
	case fault.ScopeNode:
		out.Target.Node = s.Target
	case fault.ScopeLink:
		out.Target.Link = s.Target
	case fault.ScopeRegion:
		out.Target.Region = s.Target
	case fault.ScopeZone:
		out.Target.Zone = s.Target
	case fault.ScopeWorker:
		out.Target.Worker = s.Target
	}
	return out
}
