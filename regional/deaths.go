package regional

import (
	"bytes"
	"hash/maphash"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
)

// deathGuard stores the fingerprints of requests that killed workers.
type deathGuard struct {
	// seed keys the fingerprints, so that outsiders cannot construct one.
	seed maphash.Seed

	mu     sync.Mutex
	memory poison.DeathMemory
}

// admitSuspect refuses a request whose fingerprint has killed workers, unless it is the single further attempt of
// a suspect.
func (d *deathGuard) admitSuspect(q *gatewayRequest) *openai.Error {
	q.fingerprint = poison.ComputeFingerprint(d.seed, q.tenant.Name, q.model.Name, q.raw)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.hop.Deaths > 0 {
		d.memory.RaiseVerdict(q.fingerprint, poison.Suspect, now)
	}
	var ok bool
	q.suspectAttempt, ok = d.memory.TryRequest(q.fingerprint, now)
	q.hop.Deaths = deathsFromVerdict(d.memory.VerdictFor(q.fingerprint, now))
	switch {
	case ok:
		return nil
	case q.hop.Deaths > 1:
		return openai.RequestKillsWorkers(poison.DeathRetention)
	}
	return openai.RequestSuspected()
}

// deathsFromVerdict returns the number of deaths that represents a verdict in messages to other tiers.
func deathsFromVerdict(v poison.DeathVerdict) int {
	switch v {
	case poison.Suspect:
		return 1
	case poison.Condemned:
		return 2
	}
	return 0
}

// endSuspectAttempt ends the further attempt of a suspect, if the request is one.
func (d *deathGuard) endSuspectAttempt(q *gatewayRequest) {
	if !q.suspectAttempt {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q.suspectAttempt = false
	d.memory.EndTrial(q.fingerprint)
}

// recordDeaths records the worker deaths that a zone or a peer reports for the request.
func (d *deathGuard) recordDeaths(q *gatewayRequest, res *forward.Result) {
	if q.fingerprint == 0 {
		return
	}
	n := q.reportedDeaths
	if res.Refusal != nil {
		n = max(n, deathsFromHeader(res.Refusal.Header))
	}
	if s := q.resumption.splicer; s != nil {
		n = max(n, deathsFromEvent(s.ErrorEvent()), deathsFromEvent(s.DeclinedEvent()))
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case n >= 2:
		d.memory.RaiseVerdict(q.fingerprint, poison.Condemned, now)
	case n == 1:
		d.memory.RaiseVerdict(q.fingerprint, poison.Suspect, now)
	case res.Outcome == forward.BrokenOff:
		// A zone closes the connection when a worker dies in the middle of a response that is not a stream, so the
		// death cannot be reported in any other way.
		if d.memory.VerdictFor(q.fingerprint, now) == poison.Suspect {
			d.memory.RaiseVerdict(q.fingerprint, poison.Condemned, now)
		} else {
			d.memory.RaiseVerdict(q.fingerprint, poison.Suspect, now)
		}
	case res.Err == nil && res.Status > 0 && res.Status < 500:
		d.memory.RecordSuccess(q.fingerprint)
		q.hop.Deaths = 0
		return
	}
	v := d.memory.VerdictFor(q.fingerprint, now)
	if q.hop.Deaths = deathsFromVerdict(v); v == poison.Suspect && !q.suspectAttempt {
		d.memory.BeginTrial(q.fingerprint)
		q.suspectAttempt = true
	}
}

// deathsFromHeader returns the number of worker deaths that the head of a response reports.
func deathsFromHeader(h http.Header) int {
	n, err := strconv.Atoi(forward.FirstValue(h, forward.HeaderDeaths))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// deathsFromEvent returns the number of worker deaths that the last event of a stream reports.
func deathsFromEvent(ev []byte) int {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(ev), []byte("data:"))
	if !ok {
		return 0
	}
	e := openai.ParseError(http.StatusOK, data)
	switch {
	case e == nil:
		return 0
	case e.Code == openai.CodeKillsWorkers:
		return 2
	case e.Code == openai.CodeWorkerCrashed:
		return 1
	}
	return 0
}

// setDeathsHeader reports the number of worker deaths to the gateway of the region that spilled the request.
func (q *gatewayRequest) setDeathsHeader(w http.ResponseWriter) {
	if q.fromPeer && q.hop.Deaths > 0 {
		w.Header().Set(forward.HeaderDeaths, strconv.Itoa(q.hop.Deaths))
	}
}
