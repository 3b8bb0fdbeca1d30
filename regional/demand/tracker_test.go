package demand

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestDemandDecaysAsARate(t *testing.T) {
	d, now := NewTracker(), time.Unix(1_000_000, 0)
	f := Flow{Service: "s", Model: "m", Cell: "c"}
	for range 600 { // one minute of 10 requests/s with 50 tokens each
		now = now.Add(100 * time.Millisecond)
		d.addRate(f, 50, now)
	}
	got := d.listRates(now)
	if len(got) != 1 || math.Abs(float64(got[0].TokensPerSec)-500) > 15 || math.Abs(float64(got[0].RequestsPerSecMilli)-10_000) > 300 {
		t.Fatalf("demand is %+v, want about 500 tokens/s and 10 requests/s", got)
	}
	if got := d.listRates(now.Add(3 * time.Minute)); len(got) != 0 || len(d.rateByKey) != 0 {
		t.Fatalf("demand of three minutes ago is still felt: %+v", got)
	}
}

func TestDemandIsBoundedAndKeepsTheLargest(t *testing.T) {
	d, now := NewTracker(), time.Unix(1_000_000, 0)
	big := Flow{Service: "s", Model: "m", Cell: "big"}
	d.addRate(big, 1e9, now)
	for i := range 2 * maxFlows {
		d.addRate(Flow{Service: "s", Model: "m", Cell: fmt.Sprint(i)}, float64(i+1), now)
	}
	if len(d.rateByKey) != maxFlows || d.rateByKey[big] == nil {
		t.Fatalf("%d flows are held, want %d with the largest among them", len(d.rateByKey), maxFlows)
	}
}

func TestExpectedOutputIsLearned(t *testing.T) {
	d := NewTracker()
	if got := d.ExpectedOutput("m", 4096); got != 256 {
		t.Errorf("unlearned output is %d", got)
	}
	for range 200 {
		d.LearnOutputLength("m", 40)
	}
	if got := d.ExpectedOutput("m", 4096); got != 40 {
		t.Errorf("learned output is %d, want 40", got)
	}
	if got := d.ExpectedOutput("m", 10); got != 10 {
		t.Errorf("output with a limit of 10 is %d", got)
	}
}
