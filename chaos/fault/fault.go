package fault

import (
	"context"
	"time"
)

// Kind is the kind of a fault; see Kinds.
type Kind string

// Target is what a fault injures, by the names of the fleet (fleet.Node.ID). Which fields a kind takes is in Info.Scopes.
type Target struct {
	// Node is a node by its ID, such as g1, frankfurt-gw1 or frankfurt-a-local1. "leader" is the global node that leads
	// when the fault is injected.
	Node string `json:"node,omitempty"`
	// Link is the name of a link, such as raft:g1>g2; "*" matches any part of a name, as in raft:g1>*. A link is named
	// CLASS:DIALER>LISTENER. The classes are raft, uplink, peer, http and worker.
	Link string `json:"link,omitempty"`
	// Region is a region. A link fault then injures the links that cross its border, a process fault all its processes.
	Region string `json:"region,omitempty"`
	// Zone is a zone, REGION/ZONE, such as frankfurt/a, in the same way.
	Zone string `json:"zone,omitempty"`
	// Worker is a simulated worker by its ID, such as frankfurt-a-w1. "*" matches any part, as in frankfurt-a-*.
	Worker string `json:"worker,omitempty"`
}

// listScopes returns the scopes that a target sets, with their values.
func (t Target) listScopes() map[Scope]string {
	out := map[Scope]string{}
	for s, v := range map[Scope]string{ScopeNode: t.Node, ScopeLink: t.Link, ScopeRegion: t.Region, ScopeZone: t.Zone, ScopeWorker: t.Worker} {
		if v != "" {
			out[s] = v
		}
	}
	return out
}

// Spec is one fault to inject.
type Spec struct {
	// ID names the fault: 1 to 64 letters, digits, dots, hyphens and underscores. To inject an ID that is active with an
	// equal Spec is the same as to renew it; a different one is refused.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Target is what is injured.
	Target Target `json:"target"`
	// Params are the parameters of the kind as texts, such as {"delay": "80ms"}; missing ones have the defaults of Info.
	Params map[string]string `json:"params,omitempty"`
	// Lease is how long the fault lasts unless it is renewed or cleared, MinLease to MaxLease.
	Lease time.Duration `json:"lease"`
}

// Phase is where a fault is between its injection and its verified end.
type Phase string

const (
	// PhaseActive: the lease runs and the probe finds the fault in force.
	PhaseActive Phase = "active"
	// PhaseIneffective: the lease runs and the probe does not find the fault: the fault has no effect (yet).
	PhaseIneffective Phase = "ineffective"
	// PhaseCleared: the lease has ended or was cleared, and the probe finds no trace of the fault.
	PhaseCleared Phase = "cleared"
	// PhaseUncleared: the lease has ended or was cleared, and the probe still finds the fault. A drill must not pass.
	PhaseUncleared Phase = "uncleared"
	// PhaseUnknown: no place knows the ID: it was never injected there, or it ended more than an hour ago.
	PhaseUnknown Phase = "unknown"
)

// State is a fault as its place holds it.
type State struct {
	Spec  Spec  `json:"spec"`
	Phase Phase `json:"phase"`
	// Place holds the lease: "relay", "agent" or "worker ID".
	Place string `json:"place"`
	// Victims are the nodes and links that the target came to when the fault was injected.
	Victims []string `json:"victims,omitempty"`
	// Since is when the fault was injected, Until when the lease ends or ended, by the place's clock.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Probe is what the probe observed, for people and reports.
	Probe string `json:"probe,omitempty"`
}

// Injector injects, renews, clears and verifies faults. Its methods are safe for concurrent use.
type Injector interface {
	// Inject returns when the fault is in force. An error means that nothing is injected; it names the valid kinds,
	// parameters or targets if the Spec is wrong.
	Inject(context.Context, Spec) error
	// Renew starts the fault's lease again from now, with its full length. A lease that has ended cannot be renewed.
	Renew(ctx context.Context, id string) error
	// Clear ends a fault and returns when it is out of force. To clear a fault that has ended, or that was never
	// injected, is no error.
	Clear(ctx context.Context, id string) error
	// Verify probes the injured place. An error means that the probe could not be made.
	Verify(ctx context.Context, id string) (State, error)
	// List returns the faults of all places whose leases run, whichever process injected them, without probes: what a
	// controller has to clear after the previous one was killed.
	List(context.Context) ([]State, error)
}

// Bounds of Spec.Lease.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = time.Hour
)
