package admin

import (
	"context"
	"net/http"
)

// Backend is what one node can do for an operator. A nil function is a verb that this tier does not have.
type Backend struct {
	// Status describes the node and what it stands over.
	Status func(ctx context.Context) (*Status, error)
	// Explain replays the decisions that a request would meet.
	Explain func(ctx context.Context, q ExplainQuery) (*ExplainAnswer, error)
	// Queue says who waits in a local instance.
	Queue func(ctx context.Context) (*QueueAnswer, error)
	// Autoscaling says how many replicas a local instance's models should have; an empty model means all.
	Autoscaling func(ctx context.Context, model string) (*AutoscalingAnswer, error)
	// Uplinks describes the sessions with the tiers above and below.
	Uplinks func(ctx context.Context) (*UplinksAnswer, error)
	// Spec returns the spec in force.
	Spec func(ctx context.Context) (*SpecAnswer, error)
	// SpecNow and DrainsNow are Spec and Drains with every write made before the call, wherever it was made; they need a
	// leader.
	SpecNow   func(ctx context.Context) (*SpecAnswer, error)
	DrainsNow func(ctx context.Context) (*DrainAnswer, error)
	// Apply puts a new spec in force, or says what that would do. actor is who asked.
	Apply func(ctx context.Context, r ApplyRequest, actor string) (*ApplyAnswer, error)
	// Stage says what is on trial, and EndStage promotes it or takes it back.
	Stage    func(ctx context.Context) (*StageAnswer, error)
	EndStage func(ctx context.Context, r StageRequest, actor string) (*StageAnswer, error)
	// Drain and Undrain return once the change is in force on this node.
	Drain   func(ctx context.Context, r DrainRequest, actor string) (*DrainAnswer, error)
	Undrain func(ctx context.Context, path, reason, actor string) (*DrainAnswer, error)
	// Drains lists the drains in force.
	Drains func(ctx context.Context) (*DrainAnswer, error)
	// Members lists the global nodes; AddMember, RemoveMember and Lead change who takes part and who leads.
	Members      func(ctx context.Context) (*MembersAnswer, error)
	AddMember    func(ctx context.Context, r MemberRequest, actor string) (*MembersAnswer, error)
	RemoveMember func(ctx context.Context, name, reason, actor string) (*MembersAnswer, error)
	Lead         func(ctx context.Context, r LeaderRequest, actor string) (*MembersAnswer, error)
	// Archive is the agreed state as a file's content, and Restore puts the spec and drains of one back in force.
	Archive func(ctx context.Context) (*ArchiveAnswer, error)
	Restore func(ctx context.Context, r ArchiveRequest, actor string) (*RestoreAnswer, error)
	// Audit lists the newest changes.
	Audit func(ctx context.Context) (*AuditAnswer, error)
	// Plan returns a plan that the node remembers; epoch 0 is the one in force.
	Plan func(ctx context.Context, epoch uint64) (*PlanAnswer, error)
	// PlanDiff says what moved from one plan to another. to 0 is the one in force, from 0 the one before to.
	PlanDiff func(ctx context.Context, from, to uint64) (*PlanDiffAnswer, error)
	// PlanHistory lists the newest plans that the node has seen, at most limit of them.
	PlanHistory func(ctx context.Context, limit uint64) (*PlanHistoryAnswer, error)
	// DNSSEC says how the zone is signed, and ChangeDNSSEC takes a step that is an operator's to take.
	DNSSEC       func(ctx context.Context) (*DNSSECAnswer, error)
	ChangeDNSSEC func(ctx context.Context, r DNSSECRequest, actor string) (*DNSSECAnswer, error)
	// RotateTickets makes a new key for redirect tickets.
	RotateTickets func(ctx context.Context, r TicketsRequest, actor string) (*TicketsAnswer, error)
	// Basis says what the node runs from and how old that is.
	Basis func() []Basis
	// Ready is nil when the node can do its work; nil function: as soon as it listens.
	Ready func() error
}

// BadRequest is the refusal of a call that can never succeed as it is.
func BadRequest(message, hint string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: message, Hint: hint}
}

// Conflict is the refusal of a change that is based on something that has changed since.
func Conflict(message, hint string) *Error {
	return &Error{Status: http.StatusConflict, Message: message, Hint: hint}
}

// Unavailable is the refusal of a call that may succeed later.
func Unavailable(message, hint string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: message, Hint: hint}
}
