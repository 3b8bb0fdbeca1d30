package local

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/health"
)

// fingerprint names a request in the memory of those under which workers died, and takes over what the gateway says of it.
func (a *Agent) fingerprint(v *visit) {
	v.print[0] = poison.Fingerprint(a.printSeed, v.hop.Tenant, v.model, v.body)
	v.prints = v.print[:]
	if v.hop.Deaths == 0 {
		return
	}
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	a.floor.deaths.Raise(v.prints[0], poison.Suspect, time.Now())
}

// admitSuspect refuses a request under which workers have died, unless it is the one further attempt that a suspect has.
func (f *floor) admitSuspect(v *visit) *openai.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(v.prints) != 1 { // a merged call: its requests were judged before, each for itself
		return nil
	}
	now := time.Now()
	trial, ok := f.deaths.Try(v.prints[0], now)
	v.trial = trial
	switch {
	case ok:
		return nil
	case f.deaths.Verdict(v.prints[0], now) == poison.Condemned:
		v.fate = poison.Condemned
		return openai.RequestKillsWorkers(poison.Keep)
	}
	return openai.RequestSuspected()
}

// goesAlone says that a request must not share a call with others: a worker has died under it.
func (f *floor) goesAlone(v *visit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(v.prints) == 1 && f.deaths.Verdict(v.prints[0], time.Now()) != poison.Clear
}

// endTrial ends a further attempt, if the visit is one.
func (f *floor) endTrial(v *visit) {
	if !v.trial {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v.trial = false
	for _, p := range v.prints {
		f.deaths.EndTrial(p)
	}
}

// recordDeath remembers the requests of an attempt under which its worker died. Attempts that were under way when the first of
// them was lost are of one death; the more requests they are, the less any of them is suspected. A request that was answered is
// forgotten. The caller holds the lock.
func (f *floor) recordDeath(at *attempt, m *meter, res *relay.Result, now time.Time) {
	w, v := at.worker, at.visit
	if !at.killed(m, res) {
		if res.Err == nil && res.Status > 0 && res.Status < 500 {
			for _, p := range v.prints {
				f.deaths.Survived(p)
			}
		}
		return
	}
	at.died = true
	if w.diedAt.IsZero() || at.sent.After(w.diedAt) {
		f.events++
		w.death, w.diedAt, w.together = f.events, now, max(1, len(v.prints))
		for o := range w.attempts {
			w.together += max(1, len(o.visit.prints))
		}
	}
	for _, p := range v.prints {
		v.fate = max(v.fate, f.deaths.Died(p, w.death, w.together, now))
		if v.fate == poison.Suspect && !v.trial {
			f.deaths.BeginTrial(p)
		}
	}
	v.trial = v.trial || v.fate == poison.Suspect
}

// killed reports whether an attempt ended as under a worker that died: its connection was lost before or in the answer, or the
// engine says that its GPU, its memory or its own process is gone.
func (at *attempt) killed(m *meter, res *relay.Result) bool {
	deadly := func(status int, answer []byte) bool {
		k, ok := health.Classify(status, answer, at.visit.body)
		return ok && (k == health.OOM || k == health.Broken)
	}
	switch {
	case res.ClientGone, res.NotStarted, res.Outrun, res.Late, res.GivenUp(), errors.Is(res.Err, errRequest):
		return false
	case res.Failure != nil:
		return deadly(http.StatusInternalServerError, eventData(res.Failure))
	case res.Refused != nil:
		return deadly(res.Status, res.Refused.Body)
	case res.Answered:
		return false
	case res.Err != nil:
		return !unreachable(res.Err) && !badGreeting(res.Err)
	}
	return res.Status >= 500 && deadly(res.Status, m.errorBody)
}

// badGreeting reports whether a TLS handshake failed, so that no request was sent.
func badGreeting(err error) bool {
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &alert) || errors.As(err, &record) || errors.As(err, &cert)
}

// condemn ends a visit under which a second worker has died.
func (a *Agent) condemn(w http.ResponseWriter, v *visit, res *relay.Result) {
	a.lost(v, res)
	e := openai.RequestKillsWorkers(poison.Keep)
	switch {
	case res.Cut || v.stream.joined && !res.Started:
		a.meters.resume(resumeNot, resume.Kills)
		a.account(v)
		_ = a.forward.Append(w, relay.EventOf(w, e), false) // a client that has left needs no end
	case res.Truncated && !res.Events:
		relay.Abort()
	case res.Started:
	default:
		a.tellDeaths(w, v)
		a.refuse(w, v, e, true)
	}
}

// tellDeaths tells the gateway how many workers have died under the request.
func (a *Agent) tellDeaths(w http.ResponseWriter, v *visit) {
	n := 0
	switch {
	case a.cfg.Plain:
	case v.fate == poison.Condemned:
		n = 2
	case v.fate == poison.Suspect:
		n = 1
	}
	if n > 0 {
		w.Header().Set(relay.HeaderDeaths, strconv.Itoa(n))
	}
}

// logDeath writes a line for a request that has become suspect or condemned.
func (a *Agent) logDeath(v *visit, at *attempt) {
	if v.fate < poison.Suspect || len(v.prints) != 1 {
		return
	}
	a.log.Warn("a worker died under a request: another death under the same request within ten minutes has it refused",
		telemetry.KeyWorker, at.worker.declared.Name, telemetry.KeyRequest, v.hop.RequestID, telemetry.KeyTenant, v.hop.Tenant, "verdict", v.fate.String())
}
