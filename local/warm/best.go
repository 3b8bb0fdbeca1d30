package warm

import "time"

// option is one way to have a model ready.
type option struct {
	ok            bool
	kind          Kind // Load, Wake, or Unload of what stands in the way
	waits         bool // room is being made already
	worker, place int
	seconds       float64
	failed        int
	held          int
	free          float64
}

// best is the best way to have a model ready on one more worker.
func (d *decision) best(m int, evict bool) (best option) {
	if d.running >= d.c.PerZone {
		return best
	}
	for i := range d.z.Workers {
		if o := d.option(i, m, evict); o.ok && (!best.ok || o.better(&best)) {
			best = o
		}
	}
	return best
}

// better orders options: those that need nobody to go first, then those that failed less, are sooner, hold less, and
// have more KV cache free.
func (o *option) better(than *option) bool {
	switch {
	case (o.kind == Unload || o.waits) != (than.kind == Unload || than.waits):
		return o.kind != Unload && !o.waits
	case o.waits != than.waits:
		return o.waits
	case o.failed != than.failed:
		return o.failed < than.failed
	case o.seconds != than.seconds:
		return o.seconds < than.seconds
	case o.held != than.held:
		return o.held < than.held
	}
	return o.free > than.free
}

// option is what one worker can do for a model.
func (d *decision) option(i, m int, evict bool) (o option) {
	w := &d.z.Workers[i]
	at := w.place(m)
	if at < 0 || !w.Up || w.loads() >= d.c.PerWorker || w.Nap == Unloading {
		return o
	}
	p := &w.Places[at]
	o = option{worker: i, place: at, failed: p.Failed, seconds: p.Seconds, free: w.Free}
	o.held, _ = w.held()
	if w.Asleep {
		o.ok = w.MayWake && w.Nap != Loading && !d.now.Before(w.WakeRetry) && (p.State == Loaded || p.State == Loadable && !d.now.Before(p.Retry))
		o.kind, o.failed = Wake, w.WakeFailed
		if p.State == Loaded {
			o.seconds = 0
		}
		o.seconds += w.WakeSeconds
		return o
	}
	if p.State != Loadable || d.now.Before(p.Retry) {
		return option{}
	}
	held, leaving := w.held()
	switch {
	case w.Max == 0 || held+w.spoken(leaving) < w.Max:
		o.ok = true
	case !evict:
	case leaving > w.promised:
		o.ok, o.waits = true, true
	default:
		if v := d.victim(w, m); v >= 0 {
			o.ok, o.kind, o.place = true, Unload, v
		}
	}
	return o
}

// spoken is how many rooms that are free already are promised to somebody else.
func (w *Worker) spoken(leaving int) int { return max(0, w.promised-leaving) }

// place is where a worker has a model; -1 when it cannot have it.
func (w *Worker) place(m int) int {
	for j := range w.Places {
		if w.Places[j].Model == m {
			return j
		}
	}
	return -1
}

// victim is the place that was used the longest ago of those that may go for another model; -1 for none.
func (d *decision) victim(w *Worker, m int) int {
	at := -1
	for j := range w.Places {
		p := &w.Places[j]
		if p.Model == m || !d.mayGo(w, p) {
			continue
		}
		if at < 0 || p.last().Before(w.Places[at].last()) {
			at = j
		}
	}
	return at
}

// last is when a place was last of use.
func (p *Place) last() time.Time {
	if p.Used.After(p.Since) {
		return p.Used
	}
	return p.Since
}

// mayGo says that nothing speaks against letting a model go.
func (d *decision) mayGo(w *Worker, p *Place) bool {
	return p.State == Loaded && !p.Fixed && w.awake() && d.unused(p) && d.z.Models[p.Model].ready-1 >= d.z.Models[p.Model].Floor
}

// unused says that a place has been loaded long enough and that nobody needs it now.
func (d *decision) unused(p *Place) bool {
	return p.Open == 0 && d.z.Models[p.Model].Waiting == 0 && d.now.Sub(p.Since) >= d.c.Stay
}

// idle lets go what nobody has used for as long as its model may be idle, and puts workers to sleep that hold nothing
// else.
func (d *decision) idle() {
	for i := range d.z.Workers {
		w := &d.z.Workers[i]
		if d.maySleep(w) {
			w.Nap, w.NapSince = Unloading, d.now
			for j := range w.Places {
				if w.Places[j].State == Loaded {
					d.z.Models[w.Places[j].Model].ready--
				}
			}
			d.do(Action{Sleep, i, -1})
			continue
		}
		for j := range w.Places {
			if p := &w.Places[j]; d.mayGo(w, p) && d.expired(p) {
				d.let(i, j)
			}
		}
	}
}

// expired says that a place has been idle for as long as its model may be.
func (d *decision) expired(p *Place) bool {
	most := d.z.Models[p.Model].Idle
	return most > 0 && d.now.Sub(p.last()) >= most
}

// maySleep says that all of a worker's models are idle and above their floors.
func (d *decision) maySleep(w *Worker) bool {
	if !w.MaySleep || !w.awake() || w.loads() > 0 || d.now.Before(w.WakeRetry) || d.now.Sub(w.NapSince) < d.c.Stay {
		return false
	}
	loaded := false
	for j := range w.Places {
		p := &w.Places[j]
		switch {
		case p.State == Loadable:
		case p.State != Loaded || !d.unused(p) || !d.expired(p) || d.z.Models[p.Model].ready-1 < d.z.Models[p.Model].Floor:
			return false
		default:
			loaded = true
		}
	}
	return loaded
}
