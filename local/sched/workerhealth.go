package sched

import (
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
)

// ProbeFailure is a run of consecutive failed probes of a worker. The zero value means none.
type ProbeFailure struct {
	Cause    string    // of the last failure: "GET /v1/models: connection refused"
	Attempts int       // consecutive failures
	Since    time.Time // time of the first of them
}

// ejectionCause is the cause of the last failure of a kind that probes do not detect.
type ejectionCause struct {
	kind  health.FailureKind
	cause string
}

// ModelListFailure is why a worker's models are not known. The zero value means that they were listed.
type ModelListFailure struct {
	Cause        string
	Unauthorized bool // the worker rejected our credentials
}

// cancelAttempts cancels every attempt on a worker that was sent.
func (w *Worker) cancelAttempts(why CancelReason) {
	for at := range w.attempts {
		if at.exchange != nil {
			at.exchange.CancelAttempt(why)
		}
	}
}

// addResult counts a failed probe; an empty cause ends the run.
func (f *ProbeFailure) addResult(cause string, now time.Time) {
	if cause == "" {
		*f = ProbeFailure{}
		return
	}
	if f.Attempts == 0 {
		f.Since = now
	}
	f.Cause = cause
	f.Attempts++
}

// String returns the cause with the number of attempts; empty without a failure.
func (f *ProbeFailure) String() string {
	switch f.Attempts {
	case 0:
		return ""
	case 1:
		return f.Cause + " (1 attempt)"
	}
	return f.Cause + " (" + strconv.Itoa(f.Attempts) + " attempts)"
}

// notReadyReason returns the reason shown for a worker that has not been ready yet.
func (f *ProbeFailure) notReadyReason() string {
	if f.Attempts == 0 {
		return stateStarting
	}
	return notReadyPrefix + f.String()
}

// describeCause returns the cause of an ejection with a leading colon; empty when unknown.
func (w *Worker) describeCause() string {
	switch kind := w.breaker.Reason(); {
	case kind == health.ProbeFailed && w.probeFailure.Attempts > 0:
		return ": " + w.probeFailure.String()
	case kind == w.ejectionCause.kind && w.ejectionCause.cause != "":
		return ": " + w.ejectionCause.cause
	}
	return ""
}

// lacksModelList reports whether the worker answers probes but its models are unknown, or its model list has become
// unauthorized for us.
func (w *Worker) lacksModelList() bool {
	f := &w.modelListFailure
	return f.Cause != "" && (len(w.models) == 0 && len(w.modelSlots) == 0 || f.Unauthorized)
}

// recordProbe records the cause of a probe's failure; empty when it succeeded. While the model list is missing, the
// cause of that takes precedence.
func (w *Worker) recordProbe(cause string, now time.Time) {
	if w.lacksModelList() {
		cause = w.modelListFailure.Cause
	}
	w.probeFailure.addResult(cause, now)
}

func (w *Worker) indexMode() int {
	if w.kvEvents.exact {
		return 1
	}
	return 0
}

// prefixStatus returns the text for status; empty for workers without configured events.
func (w *Worker) prefixStatus() string {
	switch {
	case len(w.kvEvents.streams) == 0:
		return ""
	case w.kvEvents.exact:
		return "exact"
	case w.kvEvents.notExactReason == "":
		return "approximate: no events yet"
	}
	return "approximate: " + w.kvEvents.notExactReason
}

// pauseThreshold is how late the patrol may run before this process counts as stopped (SIGSTOP, a frozen machine, a
// suspended laptop) and not merely busy. It is far below any stall timeout.
const pauseThreshold = 2 * time.Second

// EndedByPause reports whether an operation ended so long after its time limit that this process must have been stopped.
// What arrived meanwhile was not read, so the timeout proves nothing about the peer.
func EndedByPause(began, now time.Time, limit time.Duration) bool {
	return now.Sub(began) > limit+pauseThreshold
}

func (w *Worker) compensatePause(gap time.Duration, now time.Time) {
	w.breaker.ResetSilence(now)
	for _, p := range w.modelSlots {
		if !p.usedAt.IsZero() {
			p.usedAt = p.usedAt.Add(gap)
		}
	}
}

// isBlockedByClients reports whether all answers of a worker wait for clients that read slowly, so that the worker's output is
// not seen. Once one of them reads again, the worker's silence counts from then.
func (w *Worker) isBlockedByClients(now time.Time) bool {
	was := w.clientsBlocked
	w.clientsBlocked = false
	for at := range w.attempts {
		if at.stallExempt {
			continue
		}
		if at.exchange == nil || !at.exchange.IsBlockedByClient() {
			w.clientsBlocked = false
			break
		}
		w.clientsBlocked = true
	}
	if was && !w.clientsBlocked {
		w.breaker.ResetSilence(now)
	}
	return w.clientsBlocked
}

// isLoading reports whether a load occupies the worker, or an answer of it may wait for a model to be loaded first.
func (w *Worker) isLoading() bool {
	if w.sleep.state != modelload.StateLoadable {
		return true
	}
	for _, p := range w.modelSlots {
		if p.state == modelload.StateLoading {
			return true
		}
	}
	for at := range w.attempts {
		if m := w.findModel(at.Request.Model); m != nil && m.State == report.ModelCold {
			return true
		}
	}
	return false
}
