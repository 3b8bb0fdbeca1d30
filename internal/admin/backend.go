package admin

import (
	"context"
)

// Backend implements the calls of the API for one node. A nil function is a call that this tier does not support.
type Backend struct {
	// Status describes the node and the tiers below it.
	Status func(ctx context.Context) (*Status, error)
	// Explain explains the decisions about a request.
	Explain func(ctx context.Context, q ExplainQuery) (*ExplainAnswer, error)
	// Queue describes the queues of a local instance.
	Queue func(ctx context.Context) (*QueueAnswer, error)
	// Autoscaling returns the replica recommendations of a local instance. An empty model means all models.
	Autoscaling func(ctx context.Context, model string) (*AutoscalingAnswer, error)
	// Uplinks describes the sessions with the tiers above and below.
	Uplinks func(ctx context.Context) (*UplinksAnswer, error)
	// Spec returns the spec in force.
	Spec func(ctx context.Context) (*SpecAnswer, error)
	// SpecNow and DrainsNow are linearizable: they include every write that completed before the call, at any node. They
	// need a leader.
	SpecNow   func(ctx context.Context) (*SpecAnswer, error)
	DrainsNow func(ctx context.Context) (*DrainAnswer, error)
	// Apply puts a new spec in force, or computes its effect. actor is the caller.
	Apply func(ctx context.Context, r ApplyRequest, actor string) (*ApplyAnswer, error)
	// Stage returns the staged spec, and EndStage promotes it or rolls it back.
	Stage    func(ctx context.Context) (*StageAnswer, error)
	EndStage func(ctx context.Context, r StageRequest, actor string) (*StageAnswer, error)
	// Drain and Undrain return once the change is in force on this node.
	Drain   func(ctx context.Context, r DrainRequest, actor string) (*DrainAnswer, error)
	Undrain func(ctx context.Context, path, reason, actor string) (*DrainAnswer, error)
	// Drains lists the drains in force.
	Drains func(ctx context.Context) (*DrainAnswer, error)
	// Members lists the members of the Raft cluster. AddMember, RemoveMember and TransferLeadership change them.
	Members            func(ctx context.Context) (*MembersAnswer, error)
	AddMember          func(ctx context.Context, r MemberRequest, actor string) (*MembersAnswer, error)
	RemoveMember       func(ctx context.Context, name, reason, actor string) (*MembersAnswer, error)
	TransferLeadership func(ctx context.Context, r LeaderRequest, actor string) (*MembersAnswer, error)
	// Archive returns the replicated state as the content of a file. Restore puts the spec and drains of one in force.
	Archive func(ctx context.Context) (*ArchiveAnswer, error)
	Restore func(ctx context.Context, r ArchiveRequest, actor string) (*RestoreAnswer, error)
	// Audit lists the newest changes.
	Audit func(ctx context.Context) (*AuditAnswer, error)
	// Plan returns a plan that the node stores. Epoch 0 is the one in force.
	Plan func(ctx context.Context, epoch uint64) (*PlanAnswer, error)
	// PlanDiff compares two plans. to 0 is the one in force, from 0 the one before to.
	PlanDiff func(ctx context.Context, from, to uint64) (*PlanDiffAnswer, error)
	// PlanHistory lists the newest plans that the node received, at most limit of them.
	PlanHistory func(ctx context.Context, limit uint64) (*PlanHistoryAnswer, error)
	// DNSSEC returns the signing state of the zone, and ChangeDNSSEC requests a change of it.
	DNSSEC       func(ctx context.Context) (*DNSSECAnswer, error)
	ChangeDNSSEC func(ctx context.Context, r DNSSECRequest, actor string) (*DNSSECAnswer, error)
	// RotateTickets creates a new key for redirect tickets.
	RotateTickets func(ctx context.Context, r TicketsRequest, actor string) (*TicketsAnswer, error)
	// Basis lists the sources of the configuration in force and their age.
	Basis func() []Basis
	// Ready returns nil when the node is ready. Without it a node is ready once it listens.
	Ready func() error
}
