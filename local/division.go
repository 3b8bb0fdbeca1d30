package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/owner"
)

// handoverRamp is how long a worker that comes from another instance takes to get its full share: what that one sent it
// shows in scrapes only, which are up to a second old. It begins at a half, since nobody else serves it meanwhile.
const handoverRamp = 3 * time.Second

// division is whose the zone's workers are.
type division struct {
	owner.Division
	cameToUs func(worker string) bool
}

// whose says why a worker is another instance's, in the words of status; empty when it is ours.
func (f *floor) whose(w *worker) string {
	if f.split == nil {
		return ""
	}
	name := w.declared.Name
	if o := f.split.Owner(name, f.split.cameToUs(name)); o != f.cfg.Name {
		return "served by " + o
	}
	return ""
}

// divide puts a division in force, and says how many workers it brings and takes. What is under way on a worker that goes
// to another instance is finished here; what was learned of it is kept for when it returns.
func (f *floor) divide(d *owner.Division, cameToUs func(string) bool, now time.Time) (gained, lost int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.split = &division{Division: *d, cameToUs: cameToUs}
	for _, w := range f.workers {
		whose := f.whose(w)
		switch {
		case whose == w.elsewhere:
			continue
		case whose == "":
			gained++
			w.ours = now
		case w.elsewhere == "":
			lost++
		}
		w.elsewhere = whose
		f.alarm(w, now)
		w.refresh(now)
	}
	if gained+lost > 0 {
		f.changed()
		f.serveAll(now)
	}
	return gained, lost
}

// handover is the share that a worker gets for having come from another instance lately, up to 1.
func (w *worker) handover(now time.Time) float64 {
	if w.ours.IsZero() {
		return 1
	}
	return min(1, 0.5+0.5*max(0, now.Sub(w.ours)).Seconds()/handoverRamp.Seconds())
}

// portion is this instance's part of what a zone must have n of: by its part of the workers, rounded up, so that all
// together never keep fewer, and at most one each more.
func (f *floor) portion(n int) int {
	own, all := 0, len(f.workers)
	for _, w := range f.workers {
		if w.elsewhere == "" {
			own++
		}
	}
	if own == all {
		return n
	}
	return (n*own + all - 1) / all
}
