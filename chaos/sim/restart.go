package sim

import "math/rand/v2"

// restartWorker restarts a worker: at once, or after its weights are loaded at store GB/s. Until then its port
// refuses connections, and its zone's instances detect that by scrapes as for any dead worker.
func (r *simulation) restartWorker(w *simulatedWorker, store float64) {
	if store <= 0 {
		r.setWorkerDead(w, false)
		return
	}
	w.restartCount++
	chance := rand.New(rand.NewPCG(r.scenario.Seed, seedStarts<<32|w.restartCount<<24|uint64(w.index)))
	r.events.addEvent(event{at: r.now + int64(w.profile.ColdStart(store, true, chance)), kind: evWorkerReady, index: w.index})
}
