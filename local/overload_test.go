package local

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// overload plays flows of chats in a zone of H100s for a minute, of which the first third is not counted.
func overload(t *testing.T, flows ...*flow) (counted time.Duration) {
	t.Helper()
	if raceOn {
		t.Skip("it has one goroutine and takes long under the race detector")
	}
	const from, until = 20 * time.Second, 60 * time.Second
	for i, fl := range flows {
		fl.tenant, fl.until, fl.prompt, fl.out, fl.seed = fl.class.String(), until, chatPrompt, chatOutput, uint64(i+1)
		fl.rate *= eachWorker["H100"] * floodWorkers
	}
	inFloodZone(t, "H100", floodWorkers, from, flows...)
	return until - from
}

// within counts the times that are at most so long.
func within(list []time.Duration, most time.Duration) (n int) {
	for _, d := range list {
		if d <= most {
			n++
		}
	}
	return n
}

// TestInteractiveRequestsKeepTheirTargetWhateverBatchAsks: a zone is asked for twice what it can do, and interactive requests
// are less than what it can. They find it as if they were nearly alone, and what they leave is not wasted.
func TestInteractiveRequestsKeepTheirTargetWhateverBatchAsks(t *testing.T) {
	soon, anyTime := &flow{class: spec.Interactive, rate: 1}, &flow{class: spec.Batch, rate: 1.5}
	counted := overload(t, soon, anyTime)
	sent := len(soon.ttft) + soon.lost
	if ok := within(soon.ttft, time.Second); ok*100 < sent*99 {
		t.Errorf("%d of %d interactive requests had their first token within a second, %d were refused", ok, sent, soon.lost)
	}
	if rate := float64(soon.served+anyTime.served) / counted.Seconds(); rate < 0.9*eachWorker["H100"]*floodWorkers {
		t.Errorf("the zone answers %.0f requests a second and can do %.0f: it is kept idle", rate, eachWorker["H100"]*floodWorkers)
	}
	t.Logf("%d interactive within a second of %d; served %d and %d", within(soon.ttft, time.Second), sent, soon.served, anyTime.served)
}

// TestMostAreInTimeUnderPlainOverload: who asks for half more than there is has nine tenths of what there is in time, and not
// everything late.
func TestMostAreInTimeUnderPlainOverload(t *testing.T) {
	all := &flow{class: spec.Interactive, rate: 2.1}
	counted := overload(t, all)
	rate := float64(within(all.ttft, 1200*time.Millisecond)) / counted.Seconds()
	if rate < 0.9*eachWorker["H100"]*floodWorkers {
		t.Errorf("%.0f answers a second began in time, and the zone can do %.0f", rate, eachWorker["H100"]*floodWorkers)
	}
	t.Logf("%.0f in time a second, of %.0f that the zone can do; %d refused", rate, eachWorker["H100"]*floodWorkers, all.lost)
}
