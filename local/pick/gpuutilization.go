package pick

// usualBatch is assumed where an engine does not say how many sequences it runs at once.
const usualBatch = 64

// gpuUtilization takes the worker whose GPU is least busy, near-ties at random.
func (v *View) gpuUtilization() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.busy(at) / v.brief[at].power
	}
	return v.lightest(func(best float64) float64 { return max(0.01, nearTieOf(best)) })
}

// busy is how busy a worker's GPU is, from 0: as scraped, with what was sent there since added so that one scrape does
// not draw everybody to the same worker; or reckoned from the ledger where nobody says.
func (v *View) busy(at int32) float64 {
	b := &v.brief[at]
	batch := float64(usualBatch)
	if w := &v.Workers[at]; w.Slots > 0 {
		batch = float64(w.Slots)
	}
	if known := v.Workers[at].GPU; known > 0 {
		return min(known, 1) + float64(v.Ledger.slots[b.id].since)/batch
	}
	return v.seqs(at)/batch + v.loads[at].back/b.rate
}
