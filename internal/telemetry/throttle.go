package telemetry

import (
	"sync"
	"time"
)

// MinRepeatInterval is the minimum time between two equal lines that a LogThrottle allows.
const MinRepeatInterval = time.Minute

// maxThrottledSubjects bounds the number of subjects, and of lines about each; further lines are suppressed.
const maxThrottledSubjects = 256

// LogThrottle suppresses repeated log lines: it allows the first of each line about each subject, then at most one per minute
// with the number of suppressed ones. The zero value is ready. Safe for concurrent use.
type LogThrottle struct {
	mu        sync.Mutex
	bySubject map[string]map[string]*throttledLine // by subject, then by line
}

type throttledLine struct {
	last       time.Time
	suppressed int
	unresolved bool // allowed, and ResolveSubject was not called since
}

// AllowLine reports whether to write a line about a subject at now, and how many equal lines were suppressed before it.
func (r *LogThrottle) AllowLine(line, subject string, now time.Time) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.findLine(line, subject, now)
	switch {
	case e == nil:
		return 0, false
	case !e.last.IsZero() && now.Sub(e.last) < MinRepeatInterval:
		e.suppressed++
		return 0, false
	}
	suppressed = e.suppressed
	*e = throttledLine{last: now, unresolved: true}
	return suppressed, true
}

func (r *LogThrottle) findLine(line, subject string, now time.Time) *throttledLine {
	if e := r.bySubject[subject][line]; e != nil {
		return e
	}
	if r.bySubject[subject] == nil {
		if len(r.bySubject) >= maxThrottledSubjects && !r.deleteQuietSubjects(now) {
			return nil
		}
		if r.bySubject == nil {
			r.bySubject = make(map[string]map[string]*throttledLine)
		}
		r.bySubject[subject] = make(map[string]*throttledLine)
	}
	if len(r.bySubject[subject]) >= maxThrottledSubjects {
		return nil
	}
	e := &throttledLine{}
	r.bySubject[subject][line] = e
	return e
}

// deleteQuietSubjects deletes the subjects without an allowed line within MinRepeatInterval, and reports whether it deleted any.
func (r *LogThrottle) deleteQuietSubjects(now time.Time) (deleted bool) {
	for subject, lines := range r.bySubject {
		quiet := true
		for _, e := range lines {
			quiet = quiet && now.Sub(e.last) >= MinRepeatInterval
		}
		if quiet {
			delete(r.bySubject, subject)
			deleted = true
		}
	}
	return deleted
}

// ResolveSubject reports whether to log the end of a subject's trouble: whether a line about it was allowed since the last call.
// It also returns how many lines were suppressed since then.
func (r *LogThrottle) ResolveSubject(subject string) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.bySubject[subject] {
		if e.unresolved {
			ok, suppressed = true, suppressed+e.suppressed
			e.unresolved, e.suppressed = false, 0
		}
	}
	return suppressed, ok
}
