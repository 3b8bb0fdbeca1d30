package telemetry

import (
	"sync"
	"time"
)

// RepeatEvery is the least time between two equal lines that Repeats lets through.
const RepeatEvery = time.Minute

// maxRepeats bounds how many subjects, and lines about each, Repeats tells apart; beyond it lines are left out.
const maxRepeats = 256

// Repeats thins log lines that trouble would repeat for as long as it lasts: of each line about each subject the first
// passes, then at most one a minute, which says how many were left out. The zero value is ready. Safe for concurrent use.
type Repeats struct {
	mu    sync.Mutex
	about map[string]map[string]*repeat // by subject, then by line
}

type repeat struct {
	last time.Time
	left int
	open bool // let through, and the subject has not come back since
}

// Pass reports whether a line about a subject is to be written at now, and how many like it were left out before it.
func (r *Repeats) Pass(line, subject string, now time.Time) (leftOut int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(line, subject, now)
	switch {
	case e == nil:
		return 0, false
	case !e.last.IsZero() && now.Sub(e.last) < RepeatEvery:
		e.left++
		return 0, false
	}
	leftOut = e.left
	*e = repeat{last: now, open: true}
	return leftOut, true
}

func (r *Repeats) entry(line, subject string, now time.Time) *repeat {
	if e := r.about[subject][line]; e != nil {
		return e
	}
	if r.about[subject] == nil {
		if len(r.about) >= maxRepeats && !r.forget(now) {
			return nil
		}
		if r.about == nil {
			r.about = make(map[string]map[string]*repeat)
		}
		r.about[subject] = make(map[string]*repeat)
	}
	if len(r.about[subject]) >= maxRepeats {
		return nil
	}
	e := &repeat{}
	r.about[subject][line] = e
	return e
}

// forget lets go of subjects of which nothing was said for long.
func (r *Repeats) forget(now time.Time) (room bool) {
	for subject, lines := range r.about {
		quiet := true
		for _, e := range lines {
			quiet = quiet && now.Sub(e.last) >= RepeatEvery
		}
		if quiet {
			delete(r.about, subject)
			room = true
		}
	}
	return room
}

// Back reports whether there is an end of trouble to tell of: a line about the subject passed since it last came back.
// It also says how many lines were left out meanwhile.
func (r *Repeats) Back(subject string) (leftOut int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.about[subject] {
		if e.open {
			ok, leftOut = true, leftOut+e.left
			e.open, e.left = false, 0
		}
	}
	return leftOut, ok
}
