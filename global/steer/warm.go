package steer

// unlearnedWorker is what a worker is taken to do when nobody anywhere is ready to be measured, in tokens/s: a small GPU,
// so that what is unknown is tried and not flooded. Gateways assume the same.
const unlearnedWorker = 3000.0

// wakingFor is over how long the wait for a worker to wake is shared out, in seconds: about what a plan and the answers
// made from it last.
const wakingFor = 60

// waking is the price of warm workers that take so many seconds to be ready: those who come in that time wait for half of
// it on the mean, and those who come later for nothing. It never exceeds that of the reserve, which comes after.
func waking(seconds float64) float64 {
	s := max(0, finite(seconds, wakingFor))
	return min(max(priceWarm, s*s/2/wakingFor), 0.9*priceReserve)
}

// typical is, by model, what one worker does in the region where workers are slowest, in tokens/s. It stands for warm
// workers of regions that have none ready, whose own rates nobody knows.
func (p *problem) typical() []float64 {
	out := make([]float64, len(p.models))
	for i := range p.in.Regions {
		for k := range p.in.Regions[i].Models {
			m := &p.in.Regions[i].Models[k]
			rate := amount(m.Rate) / max(1, amount(m.Ready))
			if at := &out[p.models[m.Name]]; rate > 0 && (*at == 0 || rate < *at) {
				*at = rate
			}
		}
	}
	for k := range out {
		if out[k] == 0 {
			out[k] = unlearnedWorker
		}
	}
	return out
}
