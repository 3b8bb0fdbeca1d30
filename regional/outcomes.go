package regional

import (
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// usualSlots minutes before a stage are what it is compared with.
	usualSlots = 10
	slotTime   = time.Minute
	// maxOutcomes bounds the services and models that are told apart, before a stage and during it each; the rest counts
	// as one without a name.
	maxOutcomes = capacity.MaxOutcomes/2 - 1
	// outcomesEvery is how often a report changes, so that statements in between stay small.
	outcomesEvery = time.Second
)

// outcomes counts what becomes of clients' requests: always for the last minutes, and apart while a spec is on trial
// anywhere. Only then it has something to report.
type outcomes struct {
	mu       sync.Mutex
	stage    uint64 // under way; 0: none
	slots    [usualSlots]tallies
	slot     int
	began    time.Time // when the slot did
	during   tallies
	before   []capacity.Outcome // frozen when the stage began
	report   []capacity.Outcome
	reported time.Time
}

type (
	served  struct{ service, model string }
	tallies map[served]*capacity.Outcome
)

// begin follows the stage that a directive tells of. Requests that arrived under another one are not counted.
func (o *outcomes) begin(stage uint64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case stage == o.stage:
		return
	case stage == 0:
		o.before, o.slots, o.slot, o.began = nil, [usualSlots]tallies{}, 0, now
	case o.stage == 0:
		o.turn(now)
		o.before = o.usual()
	} // else another stage follows at once: what was usual before the first is so still
	o.stage, o.during, o.report, o.reported = stage, tallies{}, nil, time.Time{}
}

// count adds one request of a stage; f says what became of it.
func (o *outcomes) count(stage uint64, key served, now time.Time, f func(*capacity.Outcome)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if stage != o.stage {
		return
	}
	if o.stage == 0 {
		o.turn(now)
		f(o.slots[o.slot].of(key))
		return
	}
	f(o.during.of(key))
}

// turn opens the slot of now, and forgets what is too old.
func (o *outcomes) turn(now time.Time) {
	if o.slots[o.slot] == nil {
		o.slots[o.slot], o.began = tallies{}, now
	}
	for n := 0; now.Sub(o.began) >= slotTime && n < usualSlots; n++ {
		o.slot = (o.slot + 1) % usualSlots
		o.slots[o.slot], o.began = tallies{}, o.began.Add(slotTime)
	}
	if now.Sub(o.began) >= slotTime {
		o.began = now
	}
}

// of is the tally of a key, or the one without a name when there are too many.
func (t tallies) of(key served) *capacity.Outcome {
	if x := t[key]; x != nil {
		return x
	}
	if len(t) >= maxOutcomes-1 {
		key = served{}
	}
	x := t[key]
	if x == nil {
		x = &capacity.Outcome{Service: key.service, Model: key.model}
		t[key] = x
	}
	return x
}

// usual adds up the slots.
func (o *outcomes) usual() []capacity.Outcome {
	sum := tallies{}
	for _, t := range o.slots {
		for key, x := range t {
			sum.of(key).Add(x)
		}
	}
	return sum.list(0)
}

func (t tallies) list(stage uint64) []capacity.Outcome {
	out := make([]capacity.Outcome, 0, len(t))
	for _, x := range t {
		y := *x
		y.Stage = stage
		out = append(out, y)
	}
	return out
}

// reports are the outcomes as a summary carries them; none without a stage. The slice is shared: do not modify it.
func (o *outcomes) reports(now time.Time) []capacity.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stage == 0 {
		return nil
	}
	if o.report == nil || now.Sub(o.reported) >= outcomesEvery {
		s := capacity.Summary{Outcomes: slices.Concat(o.before, o.during.list(o.stage))}
		o.report, o.reported = capacity.Fit(s).Outcomes, now
	}
	return o.report
}

// counts says whether a request is one that outcomes are about: a client's, not one that a peer's gateway answers for.
func (q *request) counts() bool { return q != nil && !q.peer && q.state.ready() }

func (q *request) served() served {
	key := served{service: q.service}
	if q.model != nil {
		key.model = q.model.Name
	}
	return key
}

// outcome counts a request once it is answered, by the status of the answer. ttft is the time to its first byte, 0 when
// it has none.
func (g *Gateway) outcome(q *request, status int, ttft time.Duration) {
	if !q.counts() || q.counted {
		return
	}
	q.counted = true
	g.outcomes.count(q.state.directive.Stage, q.served(), time.Now(), func(o *capacity.Outcome) {
		o.Requests++
		switch {
		case status >= 500:
			o.Faults++
		case status >= 400:
			o.Refused++
		case ttft > 0:
			o.TTFT[capacity.TTFTBucket(ttft)]++
		}
	})
}

// broken counts an answer that had begun, and broke off, as our fault.
func (g *Gateway) broken(q *request, status int) {
	if !q.counts() || !q.counted || status >= 500 {
		return
	}
	g.outcomes.count(q.state.directive.Stage, q.served(), time.Now(), func(o *capacity.Outcome) { o.Faults++ })
}
