package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
)

// DeathTracker records under which requests workers died, and refuses those that may kill another one.
type DeathTracker struct {
	*zoneState
	workerDeaths poison.DeathMemory
	deathCount   uint64 // Worker deaths so far
}

// RefuseSuspect refuses a request under which workers have died, except for the single further attempt that a suspect
// request gets.
func (d *DeathTracker) RefuseSuspect(v *Request, now time.Time) *openai.Error {
	if len(v.Fingerprints) != 1 { // a merged call: its requests were checked before, each by itself
		return nil
	}
	trial, ok := d.workerDeaths.TryRequest(v.Fingerprints[0], now)
	v.SuspectAttempt = trial
	switch {
	case ok:
		return nil
	case d.workerDeaths.VerdictFor(v.Fingerprints[0], now) == poison.Condemned:
		v.DeathVerdict = poison.Condemned
		return openai.RequestKillsWorkers(poison.DeathRetention)
	}
	return openai.RequestSuspected()
}

// MustServeAlone reports whether a request must not share a call with others, because a worker has died under it.
func (d *DeathTracker) MustServeAlone(v *Request, now time.Time) bool {
	return len(v.Fingerprints) == 1 && d.workerDeaths.VerdictFor(v.Fingerprints[0], now) != poison.Clear
}

// EndSuspectAttempt ends the further attempt of a suspect request, if v is one.
func (d *DeathTracker) EndSuspectAttempt(v *Request) {
	if !v.SuspectAttempt {
		return
	}
	v.SuspectAttempt = false
	for _, p := range v.Fingerprints {
		d.workerDeaths.EndTrial(p)
	}
}

// recordDeath records the requests of an attempt whose worker died. Attempts in flight when the first of them was
// lost belong to the same death. The more requests share a death, the less each is suspected. A request that was
// answered is cleared.
func (d *DeathTracker) recordDeath(at *Attempt, o *AttemptOutcome, now time.Time) {
	w, v := at.Worker, at.Request
	if !o.KilledWorker {
		if !o.Failed && o.Status > 0 && o.Status < 500 {
			for _, p := range v.Fingerprints {
				d.workerDeaths.RecordSuccess(p)
			}
		}
		return
	}
	at.WorkerDied = true
	if w.diedAt.IsZero() || at.SentAt.After(w.diedAt) {
		d.deathCount++
		w.lastDeath, w.diedAt, w.inFlightAtDeath = d.deathCount, now, max(1, len(v.Fingerprints))
		for other := range w.attempts {
			w.inFlightAtDeath += max(1, len(other.Request.Fingerprints))
		}
	}
	for _, p := range v.Fingerprints {
		v.DeathVerdict = max(v.DeathVerdict, d.workerDeaths.RecordDeath(p, w.lastDeath, w.inFlightAtDeath, now))
		if v.DeathVerdict == poison.Suspect && !v.SuspectAttempt {
			d.workerDeaths.BeginTrial(p)
		}
	}
	v.SuspectAttempt = v.SuspectAttempt || v.DeathVerdict == poison.Suspect
}

// RaiseVerdict records that the gateway has seen workers die under a request.
func (d *DeathTracker) RaiseVerdict(v *Request, now time.Time) {
	d.workerDeaths.RaiseVerdict(v.Fingerprints[0], poison.Suspect, now)
}
