package tenant

import (
	"testing"
	"time"
)

// TestResetAcceptsLowerTerms: after the global cluster was restored its Raft terms start again, and its grants must
// apply.
func TestResetAcceptsLowerTerms(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := NewLeases(false, now)
	if !l.ApplyGrant(LeaseGrant{Term: 40, Number: 7}, now, now) || l.ApplyGrant(LeaseGrant{Term: 2, Number: 1}, now, now) {
		t.Fatal("a grant of a lower term counts without a reset")
	}
	l.ResetTerm()
	if !l.ApplyGrant(LeaseGrant{Term: 2, Number: 1}, now, now) {
		t.Error("a grant of a lower term does not count after a reset")
	}
}
