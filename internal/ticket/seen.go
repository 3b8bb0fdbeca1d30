package ticket

import "time"

const (
	// Life is how long a redirect may be followed.
	Life = 30 * time.Second
	// Skew is how far the clock that signs may be ahead of the one that opens.
	Skew = 30 * time.Second
)

// Seen remembers the tickets that were presented to one gateway, so that each opens a door once. Its scope is that
// gateway: another one of the same region would take the ticket once more. It holds at most twice its limit, at about 50
// bytes each; when more are presented within Life and Skew the oldest are forgotten early. It is for one
// goroutine at a time.
type Seen struct {
	limit      int
	since      time.Time // when young was begun
	young, old map[id]struct{}
}

// id tells tickets apart: the nonce is random, and the expiry makes two alike ones of a day different.
type id struct {
	nonce   uint64
	expires int64
}

// NewSeen makes an empty table that forgets early beyond limit tickets.
func NewSeen(limit int) *Seen { return &Seen{limit: limit, young: map[id]struct{}{}} }

// First reports whether an open ticket is presented for the first time, and remembers it.
func (s *Seen) First(t Ticket, now time.Time) bool {
	k := id{t.Nonce, t.Expires.Unix()}
	s.turn(now)
	_, young := s.young[k]
	_, old := s.old[k]
	if young || old {
		return false
	}
	s.young[k] = struct{}{}
	return true
}

// turn begins a new generation when the young one is full or old enough. No ticket that opens lives longer than a
// generation lasts, so that whatever the last but one held has expired.
func (s *Seen) turn(now time.Time) {
	if len(s.young) < s.limit && now.Sub(s.since) <= Life+Skew {
		return
	}
	if s.old = s.young; now.Sub(s.since) > 2*(Life+Skew) {
		s.old = nil
	}
	s.young, s.since = map[id]struct{}{}, now
}
