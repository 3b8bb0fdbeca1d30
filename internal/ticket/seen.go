package ticket

import "time"

const (
	// Lifetime is how long a redirect is valid.
	Lifetime = 30 * time.Second
	// MaxClockSkew is how far the clock of the signer may be ahead of the verifier's.
	MaxClockSkew = 30 * time.Second
)

// SeenTickets records the tickets presented to one gateway, so that each is accepted once. Its scope is that
// gateway: another one of the region would accept the ticket once more. It holds at most twice its limit, at
// about 50 bytes each; if more are presented within Lifetime and MaxClockSkew, the oldest are dropped early. It
// is not safe for concurrent use.
type SeenTickets struct {
	limit      int
	youngSince time.Time // start of the young generation
	young, old map[ticketID]struct{}
}

// ticketID identifies a ticket: a random nonce and the expiry.
type ticketID struct {
	nonce   uint64
	expires int64
}

// NewSeenTickets creates an empty table that drops tickets early beyond limit.
func NewSeenTickets(limit int) *SeenTickets {
	return &SeenTickets{limit: limit, young: map[ticketID]struct{}{}}
}

// MarkSeen reports whether an open ticket is presented for the first time, and records it.
func (s *SeenTickets) MarkSeen(t RedirectTicket, now time.Time) bool {
	k := ticketID{t.Nonce, t.Expires.Unix()}
	s.rotateGenerations(now)
	_, young := s.young[k]
	_, old := s.old[k]
	if young || old {
		return false
	}
	s.young[k] = struct{}{}
	return true
}

// rotateGenerations begins a new generation when the young one is full or old enough. No valid ticket lives
// longer than a generation, so all tickets of the dropped generation have expired.
func (s *SeenTickets) rotateGenerations(now time.Time) {
	if len(s.young) < s.limit && now.Sub(s.youngSince) <= Lifetime+MaxClockSkew {
		return
	}
	if s.old = s.young; now.Sub(s.youngSince) > 2*(Lifetime+MaxClockSkew) {
		s.old = nil
	}
	s.young, s.youngSince = map[ticketID]struct{}{}, now
}
