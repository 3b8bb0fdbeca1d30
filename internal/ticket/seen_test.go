package ticket_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/ticket"
)

// TestTicketIsNewExactlyOnce compares random tickets at random times with a plain set.
func TestTicketIsNewExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, shown, at := ticket.NewSeenTickets(1000), map[ticket.RedirectTicket]bool{}, testNow
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later")))
			k := ticket.RedirectTicket{
				Nonce:   rapid.Uint64Range(0, 20).Draw(t, "nonce"),
				Expires: at.Truncate(10 * time.Second).Add(ticket.Lifetime),
			}
			if first := s.MarkSeen(k, at); first == shown[k] {
				t.Fatalf("%+v at %s is first: %v, shown before: %v", k, at, first, shown[k])
			}
			shown[k] = true
		}
	})
}

// TestSeenTicketsForgetsOldest: a flood needs bounded memory, and of the last limit tickets none is accepted
// twice.
func TestSeenTicketsForgetsOldest(t *testing.T) {
	const limit = 100
	s := ticket.NewSeenTickets(limit)
	at := func(n uint64) ticket.RedirectTicket {
		return ticket.RedirectTicket{Nonce: n, Expires: testNow.Add(ticket.Lifetime)}
	}
	for n := range uint64(10 * limit) {
		if !s.MarkSeen(at(n), testNow) {
			t.Fatalf("ticket %d is taken for one seen", n)
		}
	}
	for n := uint64(9 * limit); n < 10*limit; n++ {
		if s.MarkSeen(at(n), testNow) {
			t.Errorf("ticket %d opens twice", n)
		}
	}
	if !s.MarkSeen(at(0), testNow) {
		t.Error("more than twice the limit is remembered")
	}
}

func TestExpiryTooFarAheadIsRefused(t *testing.T) {
	k := ticket.RedirectTicket{Expires: testNow.Add(ticket.Lifetime + ticket.MaxClockSkew)}
	if _, err := ticket.OpenTicket([][]byte{oldKey}, ticket.MintTicket(oldKey, k), testNow); err != nil {
		t.Errorf("a ticket of a clock that is %s ahead: %v", ticket.MaxClockSkew, err)
	}
	k.Expires = k.Expires.Add(time.Second)
	if _, err := ticket.OpenTicket([][]byte{oldKey}, ticket.MintTicket(oldKey, k), testNow); !errors.Is(err, ticket.ErrExpiryTooFar) {
		t.Errorf("a ticket that outlives what is remembered: %v", err)
	}
}
