package telemetry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestLogThrottleAllowsOneLinePerMinute(t *testing.T) {
	var r telemetry.LogThrottle
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	allowed, suppressed := 0, 0
	for i := range 1201 { // two minutes at ten lines a second
		if n, ok := r.AllowLine("failed", "g2", start.Add(time.Duration(i)*100*time.Millisecond)); ok {
			allowed, suppressed = allowed+1, suppressed+n
		}
	}
	if allowed != 3 || suppressed != 2*599 {
		t.Fatalf("%d lines were allowed and %d suppressed, want 3 and %d", allowed, suppressed, 2*599)
	}
	if _, ok := r.AllowLine("failed", "g3", start); !ok {
		t.Error("a line about another subject was suppressed")
	}
	if _, ok := r.AllowLine("lost", "g2", start); !ok {
		t.Error("another line about the same subject was suppressed")
	}
	late := start.Add(2*time.Minute + time.Second)
	r.AllowLine("failed", "g2", late)
	if n, ok := r.ResolveSubject("g2"); !ok || n != 1 {
		t.Errorf("the end of trouble: %v with %d suppressed, want true with 1", ok, n)
	}
	if _, ok := r.ResolveSubject("g2"); ok {
		t.Error("the end was reported twice")
	}
	if _, ok := r.AllowLine("failed", "g2", late); ok {
		t.Error("a line about a flapping subject was repeated within a minute")
	}
	if _, ok := r.ResolveSubject("g2"); ok {
		t.Error("the end of suppressed trouble was reported")
	}
	if _, ok := r.ResolveSubject("unknown"); ok {
		t.Error("the end of trouble was reported for a subject without trouble")
	}
}

func TestLogThrottleIsBounded(t *testing.T) {
	var r telemetry.LogThrottle
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	passed := 0
	for i := range 10000 {
		if _, ok := r.AllowLine("failed", fmt.Sprint("peer", i), now); ok {
			passed++
		}
	}
	if passed == 0 || passed > 256 {
		t.Fatalf("%d of 10000 subjects were told apart, want a bound", passed)
	}
	if _, ok := r.AllowLine("failed", "late comer", now.Add(telemetry.MinRepeatInterval)); !ok {
		t.Error("subjects of long ago leave no room for new ones")
	}
}
