package pick

import (
	"math"
	"time"
)

// Flow is what a worker has been sent lately: prompts in a second, and the part of the time that it takes to compute them.
// It tells whom work that is put there will keep waiting: a worker that has nothing to do at this moment may be home to many
// conversations whose next turns are on their way, and one with a backlog to few.
type Flow struct {
	homed float64 // prompts in the time seen that went where most of them was cached; all four fade
	free  float64 // and those that went anywhere
	work  float64 // seconds of it that they take
	seen  float64 // seconds
	part  float64 // of those in a second that go anywhere, as many as are reckoned the worker's: see Spread
	rate  float64 // tokens that it computes in a second
	last  Prefilled
	at    time.Time
}

const (
	// flowHalf is after how many seconds what was sent counts half: some turns of who reads an answer and thinks.
	flowHalf = 60.0
	// leastSeen is for how long a worker is observed before what it was sent in a second is told from chance, in seconds.
	leastSeen = 10.0
	// busiest bounds the part of its time that a worker is believed busy. A backlog ends also where more comes than can be
	// served, for others are then sent elsewhere.
	busiest = 0.8
)

// Observe takes in what the worker was sent in all, and how many tokens it computes in a second.
func (f *Flow) Observe(sent Prefilled, rate float64, now time.Time) {
	dt, last := now.Sub(f.at).Seconds(), f.last
	first := f.at.IsZero()
	f.at, f.last = now, sent
	if first || !(dt > 0) || !(rate > 0) {
		return
	}
	k := math.Exp2(-dt / flowHalf)
	homed := max(sent.Homed-last.Homed, 0)
	f.homed = k*f.homed + float64(homed)
	f.free = k*f.free + float64(max(sent.Prompts-last.Prompts-homed, 0))
	f.work = k*f.work + float64(max(sent.Tokens-last.Tokens, 0))/rate
	f.seen = k*f.seen + dt
	f.part, f.rate = f.free/f.seen, rate
}

// Spread reckons with prompts that have nothing cached as many for each worker as its speed is of all, as far as such prompts do
// not come back. They go anywhere, and so wait nowhere for long: a worker that was sent few of them is not one where few would
// come, but one that was sent long ones. Whoever takes that for a place where a long prompt keeps nobody waiting sends it the
// next one too, until some workers have the long prompts and the others the batches, and the tokens of both come apart
// unevenly. Those that do come back, as agents' do, come where they were sent. Call it after Observe.
func Spread(flows []*Flow) {
	var homed, free, rates float64
	for _, f := range flows {
		if f.counts() {
			homed, free, rates = homed+f.homed/f.known(), free+f.free/f.known(), rates+f.rate
		}
	}
	if !(free > 0) {
		return
	}
	back := homed / (homed + free)
	for _, f := range flows {
		if f.counts() {
			f.part = back*f.free/f.known() + (1-back)*free*(f.rate/rates)
		}
	}
}

// known is how long the flow was observed. A few moments of a worker that is new say little of how many come: they count as if
// nobody had come for some time before.
func (f *Flow) known() float64 { return max(f.seen, leastSeen) }

// counts says whether the flow has been observed, at a speed that can be.
func (f *Flow) counts() bool { return f.seen > 0 && f.rate > 0 && f.rate < maxAsk }

// Later is a worker's prompts in a second over the part of its time that they leave free: how many will wait for what is put
// there, by after.
func (f *Flow) Later() float64 {
	if !(f.seen > 0) {
		return 0
	}
	return (f.homed/f.seen + f.part) / (1 - min(f.work/f.seen, busiest))
}

// after is how many seconds those who come later will wait together for a prompt that takes own seconds behind wait others.
// Everybody waits for it who comes until the worker would next be idle: by all of own while what stands before it is worked
// off, and by less and less while it is itself. With a prompts a second that bring b seconds of work, both last 1/(1-b) times
// as long as they are, so that it is a/(1-b) (wait own + own²/2): the first factor is Flow.Later.
func after(own, wait, later float64) float64 { return later * own * (wait + own/2) }

// Sent reads how much a worker was sent since it was added, whether or not it has computed it.
func (l *Ledger) Sent(id int32) Prefilled {
	if l.account(id) == nil {
		return Prefilled{}
	}
	return l.slots[id].sent
}
