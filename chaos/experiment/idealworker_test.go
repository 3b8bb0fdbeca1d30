package experiment

import (
	"testing"
	"time"
)

// TestPossibleShareDependsOnFleetAndWorkload: it is below 1 if prompts alone exceed the objective, 1 if they do not,
// and independent of the policies; a search requires its fraction of it and reports that.
func TestPossibleShareDependsOnFleetAndWorkload(t *testing.T) {
	e := goodExperiment(t)
	c := e.expandCases()[0]
	c.SLO = &SLO{TTFT: time.Minute}
	if p, err := c.possibleShare(e, "", 1); err != nil || p != 1 {
		t.Fatalf("within a minute %v is possible, %v", p, err)
	}
	c.SLO = &SLO{TTFT: 400 * time.Millisecond}
	some, err := c.possibleShare(e, "", 1)
	if err != nil || some <= 0 || some >= 1 {
		t.Fatalf("within 400 ms %v is possible, %v", some, err)
	}
	c.Fleet = append(c.Fleet[:len(c.Fleet):len(c.Fleet)], WorkerGroup{Region: "here", Zone: "a", Count: 1, GPU: "H100", Model: c.Fleet[0].Model, Slowdown: 1})
	if p, err := c.possibleShare(e, "", 1); err != nil || p <= some {
		t.Fatalf("with a faster worker %v is possible instead of %v, %v", p, some, err)
	}
	e.SLO, e.Values, e.Seeds = SLO{TTFT: 400 * time.Millisecond}, []float64{1}, 1
	e.Knee = Knee{Policy: "least_connections", Search: CapacitySearch{From: 0.5, To: 100, Attainment: .9, Of: attainmentOfPossible, Within: .3}}
	e.Workload.Repeat = true
	e.Pass = []Assertion{{Line: "goodput(predictive) > 0"}}
	r, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Cases[0].Knee.Attainment; a <= 0 || a >= .9 {
		t.Errorf("the knee is where %v meet the objective", a)
	}
}
