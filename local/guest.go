package local

import "time"

// decoding is how long a stream's worker has decoded since its first byte, in seconds. What prompts of others took
// meanwhile is left out, or a busy worker would be believed slow at decoding.
func (f *floor) decoding(at *attempt) float64 {
	all := at.last.Sub(at.first).Seconds()
	r := at.worker.learner.Rates()
	return max(all-r.Slowed(at.before, f.ledger.Prefilled(at.worker.id)), all/4)
}

// guest says whether a visit is placed as a guest. While nobody waits, a tenant beyond its part only finds engines full
// sooner: if the zone has room for all, nobody need wait for a step of his own.
func (f *floor) guest(v *visit, p *pool, now time.Time) {
	v.query.Guest = false
	if p.queue.Yields(v.class, now) {
		v.query.Contended, v.query.Spare = true, true
	}
	if !p.queue.Guest(v.flow(), v.class, now) {
		return
	}
	v.query.Contended = true
	v.query.Guest = p.queue.Len() > 0
}
