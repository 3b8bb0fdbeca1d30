package regional

import (
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// baselineSlots is how many minutes before a stage are its baseline.
	baselineSlots = 10
	slotDuration  = time.Minute
	// outcomeReportInterval is how often a report changes, so that summaries in between stay small.
	outcomeReportInterval = time.Second
)

// outcomeCounter counts the outcomes of clients' requests: always for the last minutes, and separately while a
// staged spec is in force anywhere. It reports only during a stage.
type outcomeCounter struct {
	mu          sync.Mutex
	stage       uint64 // current stage; 0: none
	slots       [baselineSlots]outcomeTallies
	slot        int
	slotStart   time.Time // start of the slot
	duringStage outcomeTallies
	beforeStage []capacity.OutcomeCounts // frozen at the start of the stage
	report      []capacity.OutcomeCounts
	reportedAt  time.Time
}

// followStage switches to the stage of a directive. Requests that arrived in another stage are not counted.
func (o *outcomeCounter) followStage(stage uint64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case stage == o.stage:
		return
	case stage == 0:
		o.beforeStage, o.slots, o.slot, o.slotStart = nil, [baselineSlots]outcomeTallies{}, 0, now
	case o.stage == 0:
		o.advanceSlot(now)
		o.beforeStage = o.sumSlots()
	} // otherwise another stage follows directly: the baseline of the first stays valid
	o.stage, o.duringStage, o.report, o.reportedAt = stage, outcomeTallies{}, nil, time.Time{}
}

// countRequest counts one request of a stage; f adds its outcome.
func (o *outcomeCounter) countRequest(stage uint64, key outcomeKey, now time.Time, f func(*capacity.OutcomeCounts)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if stage != o.stage {
		return
	}
	if o.stage == 0 {
		o.advanceSlot(now)
		f(o.slots[o.slot].tallyFor(key))
		return
	}
	f(o.duringStage.tallyFor(key))
}

// advanceSlot starts the slot of now and drops slots that are too old.
func (o *outcomeCounter) advanceSlot(now time.Time) {
	if o.slots[o.slot] == nil {
		o.slots[o.slot], o.slotStart = outcomeTallies{}, now
	}
	for n := 0; now.Sub(o.slotStart) >= slotDuration && n < baselineSlots; n++ {
		o.slot = (o.slot + 1) % baselineSlots
		o.slots[o.slot], o.slotStart = outcomeTallies{}, o.slotStart.Add(slotDuration)
	}
	if now.Sub(o.slotStart) >= slotDuration {
		o.slotStart = now
	}
}

// sumSlots returns the sum of the slots.
func (o *outcomeCounter) sumSlots() []capacity.OutcomeCounts {
	sum := outcomeTallies{}
	for _, t := range o.slots {
		for key, x := range t {
			sum.tallyFor(key).AddCounts(x)
		}
	}
	return sum.listOutcomes(0)
}

// reportOutcomes returns the outcomes for a summary; none without a stage. The slice is shared: do not modify it.
func (o *outcomeCounter) reportOutcomes(now time.Time) []capacity.OutcomeCounts {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stage == 0 {
		return nil
	}
	if o.report == nil || now.Sub(o.reportedAt) >= outcomeReportInterval {
		s := capacity.Summary{Outcomes: slices.Concat(o.beforeStage, o.duringStage.listOutcomes(o.stage))}
		o.report, o.reportedAt = capacity.FitToLimits(s).Outcomes, now
	}
	return o.report
}

// countOutcome counts a request by the status of its response. ttft is the time to its first byte, 0 when there is
// none.
func (o *outcomeCounter) countOutcome(q *gatewayRequest, status int, ttft time.Duration) {
	if !q.isClientRequest() || q.outcomeCounted {
		return
	}
	q.outcomeCounted = true
	o.countRequest(q.policy.directive.StageNumber, q.outcomeKey(), time.Now(), func(x *capacity.OutcomeCounts) {
		x.Requests++
		switch {
		case status >= 500:
			x.Failures++
		case status >= 400:
			x.Refused++
		case ttft > 0:
			x.TTFT[capacity.TTFTBucket(ttft)]++
		}
	})
}

// countBrokenOutcome counts an interrupted response as a failure.
func (o *outcomeCounter) countBrokenOutcome(q *gatewayRequest, status int) {
	if !q.isClientRequest() || !q.outcomeCounted || status >= 500 {
		return
	}
	o.countRequest(q.policy.directive.StageNumber, q.outcomeKey(), time.Now(), func(x *capacity.OutcomeCounts) { x.Failures++ })
}

const (
	// maxOutcomes bounds the (service, model) pairs counted separately, before a stage and during it each. The
	// rest is counted as one without a name.
	maxOutcomes = capacity.MaxOutcomes/2 - 1
)

type (
	outcomeKey     struct{ service, model string }
	outcomeTallies map[outcomeKey]*capacity.OutcomeCounts
)

// tallyFor returns the tally of a key, or the one without a name when there are too many keys.
func (t outcomeTallies) tallyFor(key outcomeKey) *capacity.OutcomeCounts {
	if x := t[key]; x != nil {
		return x
	}
	if len(t) >= maxOutcomes-1 {
		key = outcomeKey{}
	}
	x := t[key]
	if x == nil {
		x = &capacity.OutcomeCounts{Service: key.service, Model: key.model}
		t[key] = x
	}
	return x
}

func (t outcomeTallies) listOutcomes(stage uint64) []capacity.OutcomeCounts {
	out := make([]capacity.OutcomeCounts, 0, len(t))
	for _, x := range t {
		y := *x
		y.Stage = stage
		out = append(out, y)
	}
	return out
}
