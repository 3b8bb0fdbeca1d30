package tenant

import (
	"testing"
	"time"
)

// TestResetTakesLowerTerms: after a restore of the global cluster its Raft terms begin again, and its grants must count.
func TestResetTakesLowerTerms(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := NewLeases(false, now)
	if !l.Take(Grant{Term: 40, Number: 7}, now, now) || l.Take(Grant{Term: 2, Number: 1}, now, now) {
		t.Fatal("a grant of a lower term counts without a reset")
	}
	l.Reset()
	if !l.Take(Grant{Term: 2, Number: 1}, now, now) {
		t.Error("a grant of a lower term does not count after a reset")
	}
}
