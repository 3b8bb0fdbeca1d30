package sim

import "math/rand/v2"

// revive brings a worker back: at once, or when a process that loads its weights at so many GB/s serves. Until then nothing answers
// on its port, and its zone's instances find out by looking, as of any worker that is not there.
func (r *run) revive(w *worker, store float64) {
	if store <= 0 {
		r.kill(w, false)
		return
	}
	w.starts++
	chance := rand.New(rand.NewPCG(r.s.Seed, seedStarts<<32|w.starts<<24|uint64(w.at)))
	r.agenda.add(event{at: r.now + int64(w.profile.ColdStart(store, true, chance)), kind: evServes, who: w.at})
}
