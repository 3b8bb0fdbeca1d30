package explain_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/explain"
)

// decide stands for any decider: it writes its reasoning down without asking who reads it.
func decide(names []string, rec *explain.Record) {
	for i, n := range names {
		c := rec.Candidate(n)
		c.Term("rtt", float64(i))
		c.Term("wait", 0.5)
		if i == 1 {
			c.Drop("draining")
		}
	}
	rec.Choose(names[0], "nearest")
	rec.Note("plan 7, 1s old")
}

func TestNilRecordAllocatesNothing(t *testing.T) {
	names := []string{"a", "b", "c"}
	if n := testing.AllocsPerRun(1000, func() { decide(names, nil) }); n != 0 {
		t.Fatalf("a decision with explain off allocates %v times, want 0", n)
	}
}

func TestRecordListsEveryCandidate(t *testing.T) {
	var rec explain.Record
	decide([]string{"a", "b", "c"}, &rec)
	if len(rec.Candidates) != 3 || rec.Chosen != "a" || rec.Reason != "nearest" || len(rec.Notes) != 1 {
		t.Fatalf("record is %+v", rec)
	}
	if got := rec.Candidates[1]; got.Dropped != "draining" || got.Seconds() != 1.5 {
		t.Fatalf("second candidate is %+v with %v s, want draining with 1.5 s", got, got.Seconds())
	}
	if rec.Candidates[0].Dropped != "" || !rec.On() {
		t.Fatalf("first candidate is %+v", rec.Candidates[0])
	}
}
