package routing_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/regional/routing"
)

func TestRetryBudget_IsShareOfRequestsWithFloor(t *testing.T) {
	var b routing.RetryBudget
	now, taken := time.Unix(1000, 0), 0
	for range 1000 {
		if b.TakeRetry(now) {
			taken++
		}
	}
	if taken != 100 {
		t.Fatalf("a full budget gave %d, want 100", taken)
	}
	for range 40 {
		b.AddRequest(0.125)
	}
	for taken = 0; b.TakeRetry(now); taken++ {
	}
	if taken != 5 {
		t.Fatalf("40 requests earned %d, want 5", taken)
	}
	for taken = 0; b.TakeRetry(now.Add(time.Second)); taken++ {
	}
	if taken != 10 {
		t.Fatalf("a quiet second earned %d, want 10", taken)
	}
}
