package quota

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// leaseHolder is the leader's state of one gateway of the spec.
type leaseHolder struct {
	id     spec.LeaseHolder
	report *HolderReport // nil: no report
	// followsLists is true if the gateway confirms our messages. Otherwise it is sent a hold, and an upper bound of
	// what it may spend is assumed.
	followsLists  bool
	number        uint64 // of the last message; 0: none yet
	hold          bool   // the message is a hold, not a list
	acked         bool   // the list is in force there
	holdConfirmed bool   // it has confirmed a message of this term
	listSent      bool   // the list was sent, and must not change until it is acknowledged
	// grantedAt is when the last list was sent. It expires spec.LeaseDuration later, by our clock.
	grantedAt time.Time
}

// markRemoved records that the spec no longer lists the gateway. It gets no messages, and what it holds expires. If
// the spec lists it again, it is sent a hold first.
func (h *leaseHolder) markRemoved() {
	h.report = nil
	if h.number > 0 {
		h.number++
	}
	h.followsLists, h.hold = false, true
}

// beginList begins another list; the last one must be acknowledged.
func (h *leaseHolder) beginList() {
	h.number++
	h.hold, h.acked, h.listSent = false, false, false
}

// hasLapsed reports whether our grants to a gateway out of touch have expired for certain.
func (h *leaseHolder) hasLapsed(now time.Time) bool {
	return now.Sub(h.grantedAt) > spec.LeaseDuration+maxMessageDelay
}

// quotaShare is one gateway's part of a sharedQuota.
type quotaShare struct {
	holder *leaseHolder
	static spec.Quota
	// acknowledged is the last acknowledged amount, and offered the last one sent.
	acknowledged, offered spec.Quota
	target                spec.Quota
	use                   capacity.TenantUsage
}

// resetToStatic sets the upper bound for a gateway after a hold: its static share, and for budgets its use if that is
// more, or the cap that it reports if that is less. If more than that cap were assumed, the gateway would be offered
// what others have used.
func (s *quotaShare) resetToStatic() {
	s.acknowledged = s.static
	s.acknowledged[spec.ResourceDayTokens] = capAmount(max(s.static[spec.ResourceDayTokens], s.use.DayTokens), s.use.LeasedTokens)
	s.acknowledged[spec.ResourceDayMicros] = capAmount(max(s.static[spec.ResourceDayMicros], s.use.DayMicros), s.use.LeasedMicros)
	s.offered = s.acknowledged
}

// capAmount limits n to limit; a limit of 0 is no limit.
func capAmount(n, limit int64) int64 {
	if limit == 0 {
		return n
	}
	return min(n, limit)
}

// maxSpend returns the most that a gateway may spend.
func (s *quotaShare) maxSpend(now time.Time) spec.Quota {
	u := s.acknowledged.ElementwiseMax(s.offered)
	if !s.holder.followsLists {
		u = u.ElementwiseMax(s.static)
		u[spec.ResourceDayTokens], u[spec.ResourceDayMicros] = max(u[spec.ResourceDayTokens], s.use.LeasedTokens), max(u[spec.ResourceDayMicros], s.use.LeasedMicros)
		if s.holder.hasLapsed(now) {
			u[spec.ResourceRequests], u[spec.ResourceTokens], u[spec.ResourceConcurrency] = s.static[spec.ResourceRequests], s.static[spec.ResourceTokens], s.static[spec.ResourceConcurrency]
		}
	}
	u[spec.ResourceConcurrency] = max(u[spec.ResourceConcurrency], s.use.Running)
	u[spec.ResourceDayTokens] = max(u[spec.ResourceDayTokens], s.use.DayTokens)
	u[spec.ResourceDayMicros] = max(u[spec.ResourceDayMicros], s.use.DayMicros)
	return u
}
