package perfmodel

import (
	"testing"
	"time"
)

func TestOvercommitFallsFastAndRecoversSlowly(t *testing.T) {
	o := NewOvercommit(1.2)
	if o.Factor(testStart) != 1.2 {
		t.Fatal("it does not start at its limit")
	}
	o.RecordPreemption(testStart)
	o.RecordPreemption(testStart.Add(time.Second)) // the same wave
	if f := o.Factor(testStart.Add(time.Second)); f < 1.07 || f > 1.1 {
		t.Fatalf("after one wave of preemptions the factor is %v", f)
	}
	for i := range 100 {
		o.RecordOutOfMemory(testStart.Add(time.Duration(10+10*i) * time.Second))
	}
	low := testStart.Add(1001 * time.Second)
	if f := o.Factor(low); f < 0.6 || f > 0.63 {
		t.Fatalf("after many OOMs the factor is %v, want about half of the limit", f)
	}
	if f := o.Factor(low.Add(time.Minute)); f > 0.7 {
		t.Fatalf("a minute later it is %v already", f)
	}
	if f := o.Factor(low.Add(time.Hour)); f != 1.2 {
		t.Fatalf("an hour later it is %v, want the limit", f)
	}
	if f := o.Factor(testStart.Add(-time.Hour)); f < 0.6 || f > 1.2 {
		t.Fatalf("with the clock set back it is %v", f)
	}
}
