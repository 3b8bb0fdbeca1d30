package lab

import (
	"testing"
	"time"
)

// TestPossible: what is possible is less than all where prompts alone take longer than the objective, all where they do not, and
// the same whatever policies are compared; a search asks for its part of that and says so.
func TestPossible(t *testing.T) {
	e := good(t)
	c := e.expanded()[0]
	c.SLO = &SLO{TTFT: time.Minute}
	if p, err := c.possible(e, "", 1); err != nil || p != 1 {
		t.Fatalf("within a minute %v is possible, %v", p, err)
	}
	c.SLO = &SLO{TTFT: 400 * time.Millisecond}
	some, err := c.possible(e, "", 1)
	if err != nil || some <= 0 || some >= 1 {
		t.Fatalf("within 400 ms %v is possible, %v", some, err)
	}
	c.Fleet = append(c.Fleet[:len(c.Fleet):len(c.Fleet)], Group{Region: "here", Zone: "a", Count: 1, GPU: "H100", Model: c.Fleet[0].Model, Slowdown: 1})
	if p, err := c.possible(e, "", 1); err != nil || p <= some {
		t.Fatalf("with a faster worker %v is possible instead of %v, %v", p, some, err)
	}
	e.SLO, e.Values, e.Seeds = SLO{TTFT: 400 * time.Millisecond}, []float64{1}, 1
	e.Knee = Knee{Policy: "least_connections", Search: Capacity{From: 0.5, To: 100, Attainment: .9, Of: ofPossible, Within: .3}}
	e.Workload.Repeat = true
	e.Pass = []Line{{Line: "goodput(predictive) > 0"}}
	r, err := Run(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Cases[0].Knee.Attainment; a <= 0 || a >= .9 {
		t.Errorf("the knee is where %v meet the objective", a)
	}
}
