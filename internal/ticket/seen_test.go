package ticket_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/ticket"
)

// TestSeenOnce plays random tickets at random times against the plain set of what was ever shown.
func TestSeenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, shown, at := ticket.NewSeen(1000), map[ticket.Ticket]bool{}, now
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later")))
			k := ticket.Ticket{
				Nonce:   rapid.Uint64Range(0, 20).Draw(t, "nonce"),
				Expires: at.Truncate(10 * time.Second).Add(ticket.Life),
			}
			if first := s.First(k, at); first == shown[k] {
				t.Fatalf("%+v at %s is first: %v, shown before: %v", k, at, first, shown[k])
			}
			shown[k] = true
		}
	})
}

// TestSeenForgetsTheOldest: a flood costs bounded memory, and of the last limit tickets none opens twice.
func TestSeenForgetsTheOldest(t *testing.T) {
	const limit = 100
	s := ticket.NewSeen(limit)
	at := func(n uint64) ticket.Ticket { return ticket.Ticket{Nonce: n, Expires: now.Add(ticket.Life)} }
	for n := range uint64(10 * limit) {
		if !s.First(at(n), now) {
			t.Fatalf("ticket %d is taken for one seen", n)
		}
	}
	for n := uint64(9 * limit); n < 10*limit; n++ {
		if s.First(at(n), now) {
			t.Errorf("ticket %d opens twice", n)
		}
	}
	if !s.First(at(0), now) {
		t.Error("more than twice the limit is remembered")
	}
}

func TestTooLongAhead(t *testing.T) {
	k := ticket.Ticket{Expires: now.Add(ticket.Life + ticket.Skew)}
	if _, err := ticket.Open([][]byte{oldKey}, ticket.Mint(oldKey, k), now); err != nil {
		t.Errorf("a ticket of a clock that is %s ahead: %v", ticket.Skew, err)
	}
	k.Expires = k.Expires.Add(time.Second)
	if _, err := ticket.Open([][]byte{oldKey}, ticket.Mint(oldKey, k), now); !errors.Is(err, ticket.ErrEarly) {
		t.Errorf("a ticket that outlives what is remembered: %v", err)
	}
}
