package telemetry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestRepeatsPassOnceAMinuteAndTellTheEnd(t *testing.T) {
	var r telemetry.Repeats
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	passed, told := 0, 0
	for i := range 1201 { // two minutes at ten lines a second
		if left, ok := r.Pass("failed", "g2", start.Add(time.Duration(i)*100*time.Millisecond)); ok {
			passed, told = passed+1, told+left
		}
	}
	if passed != 3 || told != 2*599 {
		t.Fatalf("%d lines passed and told of %d left out, want 3 and %d", passed, told, 2*599)
	}
	if _, ok := r.Pass("failed", "g3", start); !ok {
		t.Error("another subject's line was left out")
	}
	if _, ok := r.Pass("lost", "g2", start); !ok {
		t.Error("another line about the same subject was left out")
	}
	late := start.Add(2*time.Minute + time.Second)
	r.Pass("failed", "g2", late)
	if left, ok := r.Back("g2"); !ok || left != 1 {
		t.Errorf("the end of trouble: %v with %d left out, want it told with 1", ok, left)
	}
	if _, ok := r.Back("g2"); ok {
		t.Error("the end was told twice")
	}
	if _, ok := r.Pass("failed", "g2", late); ok {
		t.Error("a subject that comes and goes repeats its line within a minute")
	}
	if _, ok := r.Back("g2"); ok {
		t.Error("the end was told of trouble that was left out")
	}
	if _, ok := r.Back("never heard of"); ok {
		t.Error("a subject without trouble came back")
	}
}

func TestRepeatsAreBounded(t *testing.T) {
	var r telemetry.Repeats
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	passed := 0
	for i := range 10000 {
		if _, ok := r.Pass("failed", fmt.Sprint("peer", i), now); ok {
			passed++
		}
	}
	if passed == 0 || passed > 256 {
		t.Fatalf("%d of 10000 subjects were told apart, want a bound", passed)
	}
	if _, ok := r.Pass("failed", "late comer", now.Add(telemetry.RepeatEvery)); !ok {
		t.Error("subjects of long ago leave no room for new ones")
	}
}
