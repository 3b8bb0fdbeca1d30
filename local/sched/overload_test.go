package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// runOverload plays flows of chats in a zone of H100s for a minute, of which the first third is not counted.
func runOverload(t *testing.T, flows ...*tenantFlow) (counted time.Duration) {
	t.Helper()
	if raceEnabled {
		t.Skip("it has one goroutine and takes long under the race detector")
	}
	const from, until = 20 * time.Second, 60 * time.Second
	for i, fl := range flows {
		fl.tenant, fl.until, fl.prompt, fl.output, fl.seed = fl.class.String(), until, chatPromptLengths, chatOutputLengths, uint64(i+1)
		fl.rate *= chatsPerSecond["H100"] * floodWorkers
	}
	runFloodZone(t, "H100", floodWorkers, from, flows...)
	return until - from
}

// countWithin counts the times that are at most so long.
func countWithin(list []time.Duration, most time.Duration) (n int) {
	for _, d := range list {
		if d <= most {
			n++
		}
	}
	return n
}

// TestInteractiveKeepsItsTargetUnderBatchOverload: a zone is asked for twice what it can do, and interactive requests
// are less than what it can. They find it as if they were nearly alone, and what they leave is not wasted.
func TestInteractiveKeepsItsTargetUnderBatchOverload(t *testing.T) {
	soon, anyTime := &tenantFlow{class: spec.Interactive, rate: 1}, &tenantFlow{class: spec.Batch, rate: 1.5}
	counted := runOverload(t, soon, anyTime)
	sent := len(soon.ttft) + soon.refused
	if ok := countWithin(soon.ttft, time.Second); ok*100 < sent*99 {
		t.Errorf("%d of %d interactive requests had their first token within a second, %d were refused", ok, sent, soon.refused)
	}
	if rate := float64(soon.served+anyTime.served) / counted.Seconds(); rate < 0.9*chatsPerSecond["H100"]*floodWorkers {
		t.Errorf("the zone answers %.0f requests a second and can do %.0f: it is kept idle", rate, chatsPerSecond["H100"]*floodWorkers)
	}
	t.Logf("%d interactive within a second of %d; served %d and %d", countWithin(soon.ttft, time.Second), sent, soon.served, anyTime.served)
}

// TestMostRequestsAreOnTimeUnderOverload: who asks for half more than there is has nine tenths of what there is in time, and not
// everything late.
func TestMostRequestsAreOnTimeUnderOverload(t *testing.T) {
	all := &tenantFlow{class: spec.Interactive, rate: 2.1}
	counted := runOverload(t, all)
	rate := float64(countWithin(all.ttft, 1200*time.Millisecond)) / counted.Seconds()
	if rate < 0.9*chatsPerSecond["H100"]*floodWorkers {
		t.Errorf("%.0f answers a second began in time, and the zone can do %.0f", rate, chatsPerSecond["H100"]*floodWorkers)
	}
	t.Logf("%.0f in time a second, of %.0f that the zone can do; %d refused", rate, chatsPerSecond["H100"]*floodWorkers, all.refused)
}
