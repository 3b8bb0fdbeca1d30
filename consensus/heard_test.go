package consensus

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSilence ages what was heard by a clock of its own.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeard()
		time.Sleep(time.Minute)
		h.note("g2")
		time.Sleep(10 * time.Second)
		now := time.Now()
		if a, b := h.silence("g2", now), h.silence("g3", now); a != 10*time.Second || b != 70*time.Second {
			t.Fatalf("g2 is quiet for %s and g3, never heard, for %s", a, b)
		}
		h.keep([]Member{{ID: "g3"}})
		if got := h.silence("g2", time.Now()); got != 70*time.Second {
			t.Fatalf("a member that went and came is quiet for %s", got)
		}
	})
}
