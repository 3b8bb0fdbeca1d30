package steer

// unlearnedWorkerRate is the assumed rate of a worker when no region has a measured one, in tokens/s: that of a small
// GPU, so that an unknown worker is tried and not overloaded. Gateways assume the same.
const unlearnedWorkerRate = 3000.0

// wakeSpreadSeconds is the time over which the wait for a waking worker is averaged, in seconds: about the lifetime
// of a plan and of the answers made from it.
const wakeSpreadSeconds = 60

// wakePrice is the price of warm workers that take the given seconds to become ready: clients that arrive in that
// time wait half of it on average, later ones not at all. It never exceeds the price of the reserve, which is used
// after them.
func wakePrice(seconds float64) float64 {
	s := max(0, clampFinite(seconds, wakeSpreadSeconds))
	return min(max(priceWarm, s*s/2/wakeSpreadSeconds), 0.9*priceReserve)
}

// slowestWorkerRates is, by model, the rate of one worker in the region with the slowest workers, in tokens/s. It is
// used for warm workers of regions without a ready one, whose rates are unknown.
func (p *problem) slowestWorkerRates() []float64 {
	out := make([]float64, len(p.modelIndexes))
	for i := range p.input.Regions {
		for k := range p.input.Regions[i].Models {
			m := &p.input.Regions[i].Models[k]
			rate := clampAmount(m.Rate) / max(1, clampAmount(m.Ready))
			if at := &out[p.modelIndexes[m.Name]]; rate > 0 && (*at == 0 || rate < *at) {
				*at = rate
			}
		}
	}
	for k := range out {
		if out[k] == 0 {
			out[k] = unlearnedWorkerRate
		}
	}
	return out
}
