package explain_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/explain"
)

// runDecision stands for any decider: it writes its reasoning down without asking who reads it.
func runDecision(names []string, rec *explain.Explanation) {
	for i, n := range names {
		c := rec.AddCandidate(n)
		c.AddTerm("rtt", float64(i))
		c.AddTerm("wait", 0.5)
		if i == 1 {
			c.MarkIneligible("draining")
		}
	}
	rec.SetChosen(names[0], "nearest")
	rec.AddNote("plan 7, 1s old")
}

func TestNilExplanationAllocatesNothing(t *testing.T) {
	names := []string{"a", "b", "c"}
	if n := testing.AllocsPerRun(1000, func() { runDecision(names, nil) }); n != 0 {
		t.Fatalf("a decision with explain off allocates %v times, want 0", n)
	}
}

func TestExplanationListsEveryCandidate(t *testing.T) {
	var rec explain.Explanation
	runDecision([]string{"a", "b", "c"}, &rec)
	if len(rec.Candidates) != 3 || rec.Chosen != "a" || rec.Reason != "nearest" || len(rec.Notes) != 1 {
		t.Fatalf("record is %+v", rec)
	}
	if got := rec.Candidates[1]; got.IneligibleReason != "draining" || got.TotalSeconds() != 1.5 {
		t.Fatalf("second candidate is %+v with %v s, want draining with 1.5 s", got, got.TotalSeconds())
	}
	if rec.Candidates[0].IneligibleReason != "" || !rec.IsRecording() {
		t.Fatalf("first candidate is %+v", rec.Candidates[0])
	}
}
