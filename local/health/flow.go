package health

import "time"

// flow watches token progress: what a worker holds, and when it emitted last.
type flow struct {
	inFlight int
	progress time.Time
	spoke    bool // it has emitted since it last held nothing
}

const (
	doubted     = 4               // by how much a failed probe shortens the patience with silence
	deadSilence = 2 * time.Second // of a worker that is out already
)

// Began books a request sent, and Ended one that is over, however it ended.
func (b *Breaker) Began(now time.Time) {
	b.see(now)
	if b.flow.inFlight == 0 {
		b.flow.progress, b.flow.spoke = now, false
	}
	b.flow.inFlight++
}

// Ended books the end of a request that Began.
func (b *Breaker) Ended() {
	if b.flow.inFlight > 0 {
		b.flow.inFlight--
	}
}

// Forgive restarts the clock of silence: for a time nobody has looked at what the worker emits.
func (b *Breaker) Forgive(now time.Time) {
	b.see(now)
	if now.After(b.flow.progress) {
		b.flow.progress = now
	}
}

// Progress books bytes of any answer.
func (b *Breaker) Progress(now time.Time) {
	b.see(now)
	b.flow.progress, b.flow.spoke = now, true
}

// Stalled says whether the worker has held requests and emitted nothing for longer than Stall plus what is expected,
// the predicted time to its next byte. Of a worker whose last probe failed a quarter of Stall is believed.
func (b *Breaker) Stalled(expected time.Duration, now time.Time) bool {
	return b.Silence(now) > b.patience()+max(expected, 0)
}

// MayStall says whether Stalled may be true, whatever is expected: the caller need not find that out otherwise.
func (b *Breaker) MayStall(now time.Time) bool { return b.Silence(now) > b.patience() }

// patience is for how long silence is nothing where nothing is expected.
func (b *Breaker) patience() time.Duration {
	if b.probes > 0 {
		return b.cfg.Stall / doubted
	}
	return b.cfg.Stall
}

// Dead says whether the worker is out for what a dead process also does (it fails its probes, it stalls, it says that
// it is broken) and has held requests and emitted nothing for so long that none of them will be answered. A worker that
// is merely too busy to answer probes goes on emitting.
func (b *Breaker) Dead(now time.Time) bool {
	if b.state != Open || !b.reason.deadly() {
		return false
	}
	return b.Silence(now) > min(b.cfg.Stall, deadSilence)
}

// Silence is how long the worker has held requests and emitted nothing; 0 when it holds none.
func (b *Breaker) Silence(now time.Time) time.Duration {
	b.see(now)
	if b.flow.inFlight == 0 {
		return 0
	}
	return max(now.Sub(b.flow.progress), 0)
}
