package consensus

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestContactTimesAge ages contact times with a test clock.
func TestContactTimesAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newContactTimes()
		time.Sleep(time.Minute)
		h.recordContact("g2")
		time.Sleep(10 * time.Second)
		now := time.Now()
		if a, b := h.silentFor("g2", now), h.silentFor("g3", now); a != 10*time.Second || b != 70*time.Second {
			t.Fatalf("g2 is silent for %s and g3, without any contact, for %s", a, b)
		}
		h.retainMembers([]Member{{ID: "g3"}})
		if got := h.silentFor("g2", time.Now()); got != 70*time.Second {
			t.Fatalf("a member that went and came is quiet for %s", got)
		}
	})
}
