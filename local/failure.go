package local

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
)

// failure is a run of failed looks at a worker. The zero value is none.
type failure struct {
	cause    string    // of the last one: "GET /v1/models: connection refused"
	attempts int       // in a row
	since    time.Time // of the first of them
}

// add counts a failed look; an empty cause ends the run.
func (f *failure) add(cause string, now time.Time) {
	if cause == "" {
		*f = failure{}
		return
	}
	if f.attempts == 0 {
		f.since = now
	}
	f.cause = cause
	f.attempts++
}

// String is the cause with the number of attempts; empty where there is no failure.
func (f *failure) String() string {
	switch f.attempts {
	case 0:
		return ""
	case 1:
		return f.cause + " (1 attempt)"
	}
	return f.cause + " (" + strconv.Itoa(f.attempts) + " attempts)"
}

// notReady is the reason of a worker that has not been ready yet.
func (f *failure) notReady() string {
	if f.attempts == 0 {
		return admin.StateStarting
	}
	return admin.NotReady + f.String()
}

// blame is the cause of the last failure of a kind that no probe tells of.
type blame struct {
	kind  health.Kind
	cause string
}

// because is the cause of an ejection, with a colon before it; empty where none is known.
func (w *worker) because() string {
	switch kind := w.breaker.Reason(); {
	case kind == health.Probe && w.failing.attempts > 0:
		return ": " + w.failing.String()
	case kind == w.blame.kind && w.blame.cause != "":
		return ": " + w.blame.cause
	}
	return ""
}

// access is how the worker is reached, for the hints of causes.
func (w *worker) access() engine.Access {
	sent := w.declared.Access()
	return engine.Access{TLS: strings.HasPrefix(w.declared.URL, "https:"), Key: sent.Keyed()}
}

// listless reports whether the worker answers probes and its models are not known, or are no longer shown to us.
func (w *worker) listless() bool {
	return w.unlisted != nil && (len(w.models) == 0 && len(w.places) == 0 || unauthorized(w.unlisted))
}

// unauthorized reports whether a worker has rejected the credentials of a call.
func unauthorized(err error) bool {
	var s *engine.StatusError
	return errors.As(err, &s) && s.Status == http.StatusUnauthorized
}

// looked books the outcome of one look: the list of models counts first while it is needed.
func (w *worker) looked(probe error, now time.Time) {
	err := probe
	if w.listless() {
		err = cmp.Or(w.unlisted, probe)
	}
	w.failing.add(engine.Cause(err, w.access()), now)
}

// warnAfter is how many looks in a row must fail before a worker that is not ready is logged: engines start slower than
// this process does, and one failed look is no news.
const warnAfter = 2

// trouble is what the log is to contain about a worker that is not ready.
type trouble struct {
	failure
	url    string
	reason string
	alike  int // workers that fail for the same cause, this one included
}

// troubled describes a worker whose looks fail; false when it need not be logged.
func (f *floor) troubled(w *worker) (t trouble, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.gone || w.failing.attempts < warnAfter || w.ill() == "" {
		return t, false
	}
	t = trouble{failure: w.failing, url: w.declared.URL, reason: w.ill()}
	for _, o := range f.workers {
		if o.failing.cause == t.cause {
			t.alike++
		}
	}
	return t, true
}

// warn logs why a worker is not ready: one line a minute for each cause.
func (a *Agent) warn(w *worker, now time.Time) {
	t, ok := a.floor.troubled(w)
	if !ok {
		return
	}
	left, ok := a.repeats.Pass("worker is not ready", t.cause, now)
	if !ok {
		return
	}
	cause := strings.Replace(t.cause, " /", " "+strings.TrimRight(t.url, "/")+"/", 1)
	a.log.Warn("worker is not ready", telemetry.KeyWorker, w.declared.Name, "cause", cause, "attempts", t.attempts,
		"since", t.since.UTC().Format(time.RFC3339), "workers_with_this_cause", t.alike, "left_out", left)
}
