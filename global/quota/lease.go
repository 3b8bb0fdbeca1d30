// Package quota divides the limits of tenants among the gateways that serve them, by the demand at each.
//
// If a limit of the spec is shared (scope "global": by all regions that may serve the tenant; scope "region": by the
// gateways of one region), every gateway has a static share of it, and the shares add up to the limit. Without
// contention the static shares apply and no leases are sent. Once a tenant demands more at a gateway than half of its
// static share there, the leader lists the tenant and leases other amounts: each gateway gets its demand, or its part
// of the limit in proportion to demand, and never less than a floor (3 % of the limit over all gateways), so that a
// first request needs no round trip. A burst has its lease within a second or two: one summary up, one list down to
// the gateways that give, one summary back, one list down to the gateways that receive. Allocator computes the leases
// of one leader's term.
//
// # Invariants
//
// The leases in force, summed over all gateways, never exceed the limit: not while they change, and not when a
// gateway, the leader or all of them are cut off or die, as long as messages that arrive at all arrive within two
// seconds. Without that bound, a gateway that rises to its static share may meet leases that are not yet reclaimed:
// the sum is then over the limit by at most that share, for as long as the excess delay.
//
// Actual use may exceed the leases by:
//   - one minute's worth of a lease after its gateway was idle or has restarted (the bucket that every limit has);
//   - one request, for a floor that is smaller than one request;
//   - what streams use beyond their estimates, which is deducted later;
//   - streams that continue when the lease of concurrency is lowered; they count until they end;
//   - the moment in which gateways of one region read a new spec before those of another.
//
// How the invariant is kept:
//   - A list is numbered by the leader's term and a count, and is always complete. A gateway reports in each summary
//     the number of the list in force, and the leader offers the next one only when the last is acknowledged. What
//     the leader takes from one gateway it gives to others only after the acknowledgement.
//   - A grant answers one summary, and is in force for spec.LeaseDuration from when the gateway made that summary, by
//     the gateway's clock. So it expires at the gateway before it expires at the leader, which counts from when it
//     sent the grant. No two clocks are compared.
//   - A gateway whose lease has expired falls to its static share at once, and rises to it only
//     spec.LeaseTakeoverDelay later. The leader treats a gateway without acknowledgement for three seconds as one
//     that may soon use its static share, and reclaims the difference from the others, which acknowledge or expire in
//     time.
//   - Day budgets are caps on the use of the day, not rates. A cap does not end when a lease expires and does not
//     rise either, so that the leases of a budget add up for the whole day. A gateway keeps its cap, its use and a
//     received hold on disk. The leader assumes for a holding gateway the cap that it reports, if that is less than
//     its static share.
//
// # Why leases are not in Raft
//
// A log would let a new leader know what the old one granted. It can find out without one. A new leader sends nothing
// for two seconds, until its predecessor has noticed, and then sends every gateway a hold: at most its static share,
// or less if it had less. Once all have acknowledged the hold, each has at most its static share, and static shares
// add up. If a gateway does not answer, the same holds when every grant of the old leader has expired, 14 s after the
// election; until then the other gateways hold. So a change of leaders costs a second or two of static shares, a
// quarter of a minute while a gateway is down, and no lease costs a write. Spec and terms, on which all of this
// depends, are in Raft.
//
// Caps of budgets do not expire, so gateways report theirs in their summaries, which every node receives. A new
// leader cannot know a cap that was raised in the last moment before the change at a gateway that is cut off at the
// same time: it uses the last reported cap, and a budget can be exceeded by that one step.
//
// The package does no I/O and never decides about a single request.
package quota

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// maxMessageDelay bounds the delay of messages that arrive at all, and the time until an old leader notices that
	// it is deposed.
	maxMessageDelay = 2 * time.Second
	// maxAckAge is the age of a gateway's last acknowledgement from which it counts as out of touch. maxAckAge +
	// maxMessageDelay = spec.LeaseTakeoverDelay.
	maxAckAge = 3 * time.Second
	// delistAfter is how long a tenant's demand must be low everywhere before it is removed from the list.
	delistAfter = time.Minute
	// maxListed bounds the shared limits in contention at a time. Others keep their static shares.
	maxListed = 1024
)

// HolderReport is the last report of one gateway.
type HolderReport struct {
	Holder  spec.LeaseHolder
	Age     time.Duration // since it arrived
	Holding capacity.HeldLeases
	Uses    []capacity.TenantUsage
}

// LeaseGrant is the message for one gateway. The same grant may be sent again.
type LeaseGrant struct {
	Term, Number uint64
	Boot, Mark   uint64 // of the summary that it answers
	Hold         bool   // no list: at most the static share, or less if the gateway has less
	Leases       []TenantLease
}

// TenantLease is one tenant's part at one gateway.
type TenantLease struct {
	Tenant string
	Day    int64 // the day of the budget parts
	Amount spec.Quota
}

// Allocator computes and keeps the leases of one term. It belongs to one goroutine. Create one with New for each
// term.
type Allocator struct {
	term           uint64
	startedAt      time.Time
	holders        map[spec.LeaseHolder]*leaseHolder
	removedHolders map[spec.LeaseHolder]*leaseHolder // gateways that left the spec, until their grants have expired
	quotas         map[quotaKey]*sharedQuota
	spec           *spec.Spec

	// WallShift is added to the time of UpdateGrants for the day of a budget, the only use of wall time here.
	WallShift time.Duration
	// Unlisted counts the tenants that did not fit in the list in the last step.
	Unlisted int
}

type quotaKey struct{ tenant, region string }

// New begins a term.
func New(term uint64, now time.Time) *Allocator {
	return &Allocator{term: term, startedAt: now, holders: map[spec.LeaseHolder]*leaseHolder{}, removedHolders: map[spec.LeaseHolder]*leaseHolder{}, quotas: map[quotaKey]*sharedQuota{}}
}

// Term returns the allocator's term.
func (l *Allocator) Term() uint64 { return l.term }

// Listed returns the number of shared limits in contention.
func (l *Allocator) Listed() int { return len(l.quotas) }

// UpdateGrants processes the gateways' reports and returns the messages for them. It is called about every quarter of
// a second. Gateways of the spec with a report get grants; the result is nil in the first seconds of a term.
func (l *Allocator) UpdateGrants(now time.Time, s *spec.Spec, reports []HolderReport) map[spec.LeaseHolder]*LeaseGrant {
	if now.Sub(l.startedAt) < maxMessageDelay {
		return nil
	}
	l.applySpec(s)
	l.dropRemovedHolders(now)
	for _, h := range l.holders {
		h.report = nil
	}
	for i := range reports {
		if h := l.holders[reports[i].Holder]; h != nil {
			h.report = &reports[i]
		}
	}
	l.readReports(now)
	dark := l.mayOldGrantsHold(now)
	for _, h := range l.holders {
		l.updateHolder(h, dark)
	}
	l.closeIdleQuotas(now)
	for _, c := range l.quotas {
		c.setTargets(now)
	}
	return l.makeGrants(now)
}

// applySpec switches to another spec: amounts in force stay for the shared limits that remain.
func (l *Allocator) applySpec(s *spec.Spec) {
	if l.spec == s {
		return
	}
	l.spec = s
	old := l.holders
	l.holders = map[spec.LeaseHolder]*leaseHolder{}
	for i := range s.Regions {
		r := &s.Regions[i]
		for k := range r.Gateways {
			id := spec.LeaseHolder{Region: r.Name, Gateway: r.Gateways[k].Name}
			switch h := cmp.Or(old[id], l.removedHolders[id]); h {
			case nil:
				l.holders[id] = &leaseHolder{id: id}
			default:
				l.holders[id] = h
				delete(l.removedHolders, id)
			}
		}
	}
	for id, h := range old {
		if l.holders[id] == nil {
			h.markRemoved()
			l.removedHolders[id] = h
		}
	}
	was := l.quotas
	l.quotas = map[quotaKey]*sharedQuota{}
	for k, c := range was {
		t := s.FindTenant(k.tenant)
		if t == nil {
			continue
		}
		if next := l.findOrAddQuota(t, s.SharedQuotaOf(t, c.shares[0].holder.id.Region)); next != nil {
			next.inheritFrom(c)
			for _, x := range c.shares {
				if l.removedHolders[x.holder.id] == x.holder {
					next.shares = append(next.shares, &quotaShare{holder: x.holder, acknowledged: x.acknowledged, offered: x.offered, use: x.use})
				}
			}
		}
	}
}

// dropRemovedHolders drops the gateways that left the spec once their grants have expired. A budget does not expire:
// their use of it counts until the day is over.
func (l *Allocator) dropRemovedHolders(now time.Time) {
	if len(l.removedHolders) == 0 {
		return
	}
	keep := map[*leaseHolder]bool{}
	for _, c := range l.quotas {
		c.shares = slices.DeleteFunc(c.shares, func(s *quotaShare) bool {
			if l.removedHolders[s.holder.id] != s.holder {
				return false
			}
			most := s.maxSpend(now)
			stays := !s.holder.hasLapsed(now) || most[spec.ResourceDayTokens] > 0 || most[spec.ResourceDayMicros] > 0
			keep[s.holder] = keep[s.holder] || stays
			return !stays
		})
	}
	for id, h := range l.removedHolders {
		if !keep[h] && h.hasLapsed(now) {
			delete(l.removedHolders, id)
		}
	}
}

// findOrAddQuota finds or adds a tenant's sharedQuota; nil if nothing is shared in it.
func (l *Allocator) findOrAddQuota(t *spec.Tenant, c spec.SharedQuota) *sharedQuota {
	if c.HolderCount() < 2 {
		return nil
	}
	k := quotaKey{t.Name, ""}
	if t.Limits.Scope != spec.ScopeGlobal {
		k.region = c.OnlyRegion()
	}
	if x := l.quotas[k]; x != nil {
		return x
	}
	whole := t.TotalQuota()
	if whole == (spec.Quota{}) {
		return nil
	}
	x := &sharedQuota{tenant: t, limit: whole}
	c.ForEachHolder(whole, func(id spec.LeaseHolder, static spec.Quota) {
		x.shares = append(x.shares, &quotaShare{holder: l.holders[id], static: static, acknowledged: static, offered: static, target: static})
	})
	l.quotas[k] = x
	return x
}

// readReports updates use and demand of the limits in contention, and adds new ones.
func (l *Allocator) readReports(now time.Time) {
	for _, c := range l.quotas {
		c.clearDemand()
	}
	l.Unlisted = 0
	for _, h := range l.holdersInOrder() {
		if h.report == nil {
			continue
		}
		for i := range h.report.Uses {
			l.recordUse(h, &h.report.Uses[i], now)
		}
	}
	for _, c := range l.quotas {
		c.startDay(c.tenant.Budget.DayNumber(now.Add(l.WallShift)))
	}
}

// closeIdleQuotas removes limits without contention.
func (l *Allocator) closeIdleQuotas(now time.Time) {
	for k, c := range l.quotas {
		if now.Sub(c.neededAt) > delistAfter && c.isAtStaticShares() {
			delete(l.quotas, k)
		}
	}
}

func (l *Allocator) recordUse(h *leaseHolder, u *capacity.TenantUsage, now time.Time) {
	t := l.spec.FindTenant(u.Tenant)
	if t == nil {
		return
	}
	k := quotaKey{tenant: t.Name}
	if t.Limits.Scope != spec.ScopeGlobal {
		k.region = h.id.Region
	}
	c := l.quotas[k]
	if c == nil {
		of := l.spec.SharedQuotaOf(t, h.id.Region)
		if of.HolderCount() < 2 || !needsMoreThanShare(u, of.StaticShare(t.TotalQuota(), h.id), t.Budget.DayNumber(now.Add(l.WallShift))) {
			return
		}
		if len(l.quotas) >= maxListed {
			l.Unlisted++
			return
		}
		if c = l.findOrAddQuota(t, of); c == nil {
			return
		}
		c.neededAt = now
	}
	for _, s := range c.shares {
		if s.holder != h {
			continue
		}
		s.use = *u
		if needsMoreThanShare(u, s.static, t.Budget.DayNumber(now.Add(l.WallShift))) {
			c.neededAt = now
		}
	}
}

// needsMoreThanShare reports whether a gateway may soon need more than its static share of any resource.
func needsMoreThanShare(u *capacity.TenantUsage, static spec.Quota, day int64) bool {
	spent := u.Day == day
	return isOverHalf(u.RequestsMilli, static[spec.ResourceRequests]) || isOverHalf(u.TokensMilli, static[spec.ResourceTokens]) ||
		isOverHalf(u.WantedConcurrency, static[spec.ResourceConcurrency]) || spent && (isOverHalf(u.DayTokens, static[spec.ResourceDayTokens]) || isOverHalf(u.DayMicros, static[spec.ResourceDayMicros]))
}

func isOverHalf(n, static int64) bool { return n > 0 && 2*n > static }

// isInTouch reports whether a gateway has recently confirmed a message of this term.
func (l *Allocator) isInTouch(h *leaseHolder) bool {
	return h.report != nil && h.report.Holding.Term == l.term &&
		h.report.Age+time.Duration(h.report.Holding.AgeMillis)*time.Millisecond <= maxAckAge
}

// mayOldGrantsHold reports whether grants of the previous leader may still be in force. Until they have expired, or
// all gateways have confirmed that they hold at most their static shares, no gateway gets a list, because a list
// would raise others to theirs.
func (l *Allocator) mayOldGrantsHold(now time.Time) bool {
	if now.Sub(l.startedAt) > spec.LeaseDuration+2*maxMessageDelay {
		return false
	}
	for _, h := range l.holders {
		if l.isInTouch(h) && h.number > 0 && h.report.Holding.Number == h.number {
			h.holdConfirmed = true
		}
		if !h.holdConfirmed {
			return true
		}
	}
	return false
}

// updateHolder checks whether a gateway confirms our messages.
func (l *Allocator) updateHolder(h *leaseHolder, dark bool) {
	in := l.isInTouch(h)
	there := in && h.report.Holding.Number == h.number
	switch {
	case !h.followsLists && h.number == 0 && h.report != nil:
		h.number, h.hold = 1, true
		if held := h.report.Holding; held.Term == l.term && held.Number < math.MaxUint64 {
			h.number = held.Number + 1 // it was in the spec before and refuses a lower number of the same term
		}
	case !h.followsLists && there && h.number > 0 && !dark:
		h.followsLists = true
		h.beginList()
		l.updateShares(h, (*quotaShare).resetToStatic)
	case h.followsLists && !in:
		h.followsLists, h.hold = false, true
		h.number++
	case h.followsLists && there && !h.acked:
		h.acked = true
		l.updateShares(h, func(s *quotaShare) { s.acknowledged = s.offered })
	}
}

func (l *Allocator) updateShares(h *leaseHolder, f func(*quotaShare)) {
	for _, c := range l.quotas {
		for _, s := range c.shares {
			if s.holder == h {
				f(s)
			}
		}
	}
}

func (l *Allocator) holdersInOrder() []*leaseHolder {
	out := make([]*leaseHolder, 0, len(l.holders))
	for _, h := range l.holders {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b *leaseHolder) int {
		return cmp.Or(strings.Compare(a.id.Region, b.id.Region), strings.Compare(a.id.Gateway, b.id.Gateway))
	})
	return out
}

func (l *Allocator) quotasInOrder() []*sharedQuota {
	keys := make([]quotaKey, 0, len(l.quotas))
	for k := range l.quotas {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b quotaKey) int {
		return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.region, b.region))
	})
	out := make([]*sharedQuota, len(keys))
	for i, k := range keys {
		out[i] = l.quotas[k]
	}
	return out
}
