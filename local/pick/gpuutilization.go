package pick

// defaultBatch is assumed when an engine does not report how many sequences it runs at once.
const defaultBatch = 64

// chooseGPUUtilization picks the worker whose GPU is least busy; near-ties at random.
func (v *WorkerView) chooseGPUUtilization() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.gpuBusyOn(at) / v.costInputs[at].effectiveWeight
	}
	return v.pickCheapest(func(best float64) float64 { return max(0.01, relativeTieSlack(best)) })
}

// gpuBusyOn returns how busy a worker's GPU is, from 0. It is the scraped value plus what was sent there since, so that
// one scrape does not direct all requests to the same worker. Without a scraped value it is estimated from the ledger.
func (v *WorkerView) gpuBusyOn(at int32) float64 {
	b := &v.costInputs[at]
	batch := float64(defaultBatch)
	if w := &v.Workers[at]; w.Slots > 0 {
		batch = float64(w.Slots)
	}
	if known := v.Workers[at].GPUBusy; known > 0 {
		return min(known, 1) + float64(v.Ledger.SentSinceScrape(b.id))/batch
	}
	return v.sequencesOn(at)/batch + v.loads[at].backlogTokens/b.prefillRate
}
