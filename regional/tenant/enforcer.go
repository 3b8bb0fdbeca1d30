package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Enforcer enforces the tenants' limits of a spec at one gateway, with the leases that the global tier grants. It has
// one writer at a time.
type Enforcer struct {
	holder  spec.LeaseHolder
	boot    uint64    // identifies this run of the gateway
	started time.Time // marks count from it
	leases  *Leases
	limiter *Limiter
	spec    *spec.Spec
	terms   map[string]Terms // of the spec, by tenant; computed when needed
}

// NewEnforcer returns an enforcer for a run of a gateway, which boot identifies. standalone is set when no global tier grants leases: the gateway has
// its static shares from the beginning.
func NewEnforcer(holder spec.LeaseHolder, boot uint64, standalone bool, now time.Time) *Enforcer {
	leases := NewLeases(standalone, now)
	return &Enforcer{holder: holder, boot: boot, started: now, leases: leases, limiter: NewLimiter(leases), terms: map[string]Terms{}}
}

// SetSpec replaces the spec. Nil: there is none yet.
func (e *Enforcer) SetSpec(s *spec.Spec) {
	if s != e.spec {
		e.spec = s
		clear(e.terms)
	}
}

// termsOf returns the limits of a tenant of the spec here.
func (e *Enforcer) termsOf(t *spec.Tenant) Terms {
	x, ok := e.terms[t.Name]
	if !ok {
		x = TermsOf(e.spec, t, e.holder)
		e.terms[t.Name] = x
	}
	return x
}

// EnterRequest counts a request as in flight before its cost is known; false when the tenant has reached its
// concurrency limit. A request that entered must be admitted or leave.
func (e *Enforcer) EnterRequest(t *spec.Tenant, now time.Time) (Denial, bool) {
	return e.limiter.EnterRequest(t.Name, e.termsOf(t), now)
}

// LeaveRequest ends a request that entered and was not admitted.
func (e *Enforcer) LeaveRequest(t *spec.Tenant) { e.limiter.LeaveRequest(t.Name) }

// AdmitRequest charges a request to its tenant's limits, all or nothing. entered is set when it has entered before.
func (e *Enforcer) AdmitRequest(t *spec.Tenant, entered bool, cost RequestCost, now time.Time) (Reservation, Denial, bool) {
	if entered {
		return e.limiter.AdmitEntered(t.Name, e.termsOf(t), cost, now)
	}
	return e.limiter.AdmitRequest(t.Name, e.termsOf(t), cost, now)
}

// SettleRequest ends an admitted request and returns the unused part of its reservation.
func (e *Enforcer) SettleRequest(r Reservation, used RequestCost, now time.Time) {
	e.limiter.SettleRequest(r, used, now)
}

// RemainingFor returns what remains of a tenant's limits.
func (e *Enforcer) RemainingFor(t *spec.Tenant, now time.Time) Remaining {
	return e.limiter.RemainingFor(t.Name, e.termsOf(t), now)
}

// RetainTenants removes idle tenants for which keep is false.
func (e *Enforcer) RetainTenants(keep func(name string) bool) { e.limiter.RetainTenants(keep) }

// ApplyGrant applies the leader's grant of leases. boot and mark are those of the summary that the grant answers; a grant
// to an earlier run of the gateway is ignored.
func (e *Enforcer) ApplyGrant(g LeaseGrant, boot, mark uint64, now time.Time) {
	if boot == e.boot {
		e.leases.ApplyGrant(g, e.started.Add(time.Duration(min(mark, uint64(capacity.MaxAmount)/1e6))*time.Millisecond), now)
	}
}

// ResetTerm accepts grants of any term again, because a new generation of the cluster numbers its terms from the start.
func (e *Enforcer) ResetTerm() { e.leases.ResetTerm() }

// HasLeases reports whether leases of the global tier are in force.
func (e *Enforcer) HasLeases(now time.Time) bool { return e.leases.IsInForce(now) }

// ListDayUse lists the use of daily budgets, to be persisted.
func (e *Enforcer) ListDayUse() []DayUse { return e.limiter.ListDayUse() }

// RestoreDayUse restores the use of daily budgets.
func (e *Enforcer) RestoreDayUse(days []DayUse) { e.limiter.RestoreDayUse(days) }

// ListAllUses lists the use of all tenants, also of those without limits.
func (e *Enforcer) ListAllUses(now time.Time) []capacity.TenantUsage {
	return e.limiter.ListAllUses(now)
}

// FillSummary writes the tenants' use, and the leases that it counts against, into a summary.
func (e *Enforcer) FillSummary(s *capacity.Summary, now time.Time) {
	if e.spec != nil {
		e.limiter.SetTerms(func(name string) (Terms, bool) {
			if t := e.spec.FindTenant(name); t != nil {
				return e.termsOf(t), true
			}
			return Terms{}, false
		})
	}
	s.TenantUsages = e.limiter.ListUses(now)
	term, number, age := e.leases.NewestGrant(now)
	s.HeldLeases = capacity.HeldLeases{
		Term: term, Number: number, Boot: e.boot, Mark: uint64(max(now.Sub(e.started), 0) / time.Millisecond),
		AgeMillis: min(age.Milliseconds(), capacity.MaxAmount),
	}
}
