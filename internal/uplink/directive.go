package uplink

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Directive is what a parent tells a child: policy, drains, and how its peers are.
type Directive struct {
	// Generation rises when the replicated state is restored from an archive or recovered from a lost majority; 0: never,
	// or the parent is of an earlier release. It is compared before Index, see Position.
	Generation uint64
	// Index is the applied index of the replicated state that the directive was made from: among several parents'
	// directives of the greatest generation a child adopts the greatest.
	Index uint64
	// SpecVersion numbers Spec, the operator's declared state in its canonical text. Empty: nothing declared yet.
	SpecVersion uint64
	Spec        []byte
	// PlanEpoch numbers the steering plan in force, for explanations.
	PlanEpoch uint64
	// Drains in force, by path.
	Drains []Drain
	// Peers are the other regions, for spilling.
	Peers []Peer
	// TicketKeys open redirect tickets, newest first. They are secrets: never log a Directive.
	TicketKeys [][]byte
	// PrefixSeed starts the hashes by which summaries name hot prefixes, so that parent and child mean the same; 0: none are
	// named. It is a secret: who has it can test guesses of prompts.
	PrefixSeed uint64
	// Locals are the live instances of the child's zone, itself among them, where the child is a local. Empty: the parent
	// does not say.
	Locals []PeerGateway
	// Stage numbers the trial of a spec that is under way anywhere, 0 when there is none: outcomes are reported under it.
	Stage uint64
	// Kept is when the directive was written to disk; zero for one that a parent sent.
	Kept time.Time
	// Candidate says that Spec is the one on trial, and this child serves by it.
	Candidate bool
	// Grant is what the child may spend for tenants; nil from a parent that does not lead.
	Grant *Grant
}

// Drain asks that a region, zone or worker takes no new work.
type Drain struct {
	Path   string
	Until  time.Time // zero: until undrained
	Reason string
}

// Peer is another region as the parent sees it.
type Peer struct {
	Region   string
	Gateways []PeerGateway
	// Summary of the region; nil when nothing is known.
	Summary *capacity.Summary
	// Age of Summary when the directive was made; RTT between the regions, predicted or measured.
	Age, RTT time.Duration
	// RTTSamples is how many measurements are in the RTT; 0: it is predicted from the distance.
	RTTSamples int64
}

// PeerGateway is one gateway of a peer region, or one instance of a zone, and where it takes forwarded requests, "host:port".
type PeerGateway struct {
	Name, Endpoint string
}
