package warm

import (
	"cmp"
	"slices"
	"time"
)

// decision is one run of Decide.
type decision struct {
	c       Config
	z       *Zone
	now     time.Time
	running int // loads and wakings in the zone
	out     []Action
}

// Decide appends what to do now to out. z is changed as if it had been begun.
func Decide(c Config, z *Zone, now time.Time, out []Action) []Action {
	d := decision{c: c.WithDefaults(), z: z, now: now, out: out}
	d.count()
	for _, m := range d.needs() {
		d.supply(m, true)
	}
	for m := range z.Models {
		for short := z.Models[m].short(); short > 0; short-- {
			if !d.supply(m, true) {
				break
			}
		}
	}
	for m := range z.Models {
		if d.worthMore(m) {
			d.supply(m, false)
		}
	}
	d.idle()
	return d.out
}

// count sums up what is ready and what is coming.
func (d *decision) count() {
	z := d.z
	for m := range z.Models {
		z.Models[m].ready, z.Models[m].coming = 0, 0
	}
	for i := range z.Workers {
		w := &z.Workers[i]
		w.promised = 0
		d.running += w.loads()
		for j := range w.Places {
			p := &w.Places[j]
			switch m := &z.Models[p.Model]; {
			case !w.Up:
			case p.State == Loading, p.State == Loaded && w.Asleep && w.Nap == Loading:
				m.coming++
			case p.State == Loaded && w.awake():
				m.ready++
			}
		}
	}
}

// needs lists the models that somebody waits for and nobody has or will have, the longest wait first.
func (d *decision) needs() []int {
	var out []int
	for m := range d.z.Models {
		if k := &d.z.Models[m]; k.Waiting > 0 && k.ready+k.coming == 0 {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(d.z.Models[b].Oldest, d.z.Models[a].Oldest) })
	return out
}

// short is how many replicas lack to the floor.
func (m *Model) short() int { return m.Floor - m.ready - m.coming }

// worthMore says that another replica would be there before the queue of those there are has been worked off, twice over.
func (d *decision) worthMore(m int) bool {
	k := &d.z.Models[m]
	if k.Waiting == 0 || k.ready == 0 || k.coming > 0 {
		return false
	}
	best := d.best(m, false)
	return best.ok && k.Wait > 2*best.seconds && best.kind != Unload
}

// supply begins a load of a model, or what must go before it. False when nothing can be done now.
func (d *decision) supply(m int, evict bool) bool {
	b := d.best(m, evict)
	if !b.ok {
		return false
	}
	w := &d.z.Workers[b.worker]
	switch {
	case b.waits:
		w.promised++
		return false
	case b.kind == Wake:
		d.do(Action{Wake, b.worker, -1})
		w.Nap, w.NapSince = Loading, d.now
		d.running++
		for j := range w.Places {
			if w.Places[j].State == Loaded {
				d.z.Models[w.Places[j].Model].coming++
			}
		}
		return true
	case b.kind == Unload:
		d.let(b.worker, b.place)
		w.promised++
		return false // the load comes once there is room
	}
	p := &w.Places[b.place]
	p.State, p.Since = Loading, d.now
	d.z.Models[m].coming++
	d.running++
	d.do(Action{Load, b.worker, b.place})
	return true
}

func (d *decision) do(a Action) { d.out = append(d.out, a) }

// let begins to let a model go.
func (d *decision) let(worker, place int) {
	p := &d.z.Workers[worker].Places[place]
	p.State, p.Since = Unloading, d.now
	d.z.Models[p.Model].ready--
	d.do(Action{Unload, worker, place})
}

// loads are the loads and wakings that run on a worker.
func (w *Worker) loads() (n int) {
	if w.Nap == Loading {
		n++
	}
	for j := range w.Places {
		if w.Places[j].State == Loading {
			n++
		}
	}
	return n
}

// awake workers take requests and loads.
func (w *Worker) awake() bool { return w.Up && !w.Asleep && w.Nap != Unloading }

// held counts the places that fill a worker.
func (w *Worker) held() (n, leaving int) {
	for j := range w.Places {
		switch p := &w.Places[j]; {
		case p.Fixed || p.State == Loadable:
		case p.State == Unloading:
			leaving++
			n++
		default:
			n++
		}
	}
	return n, leaving
}
