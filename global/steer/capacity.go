package steer

import "math"

// unlearnedWorkerRate is the assumed rate of a worker when no region has a measured one, in tokens/s: that of a small
// GPU, so that an unknown worker is tried and not overloaded. Gateways assume the same.
const unlearnedWorkerRate = 3000.0

// capacityTable is the capacity of the regions, by region and model.
type capacityTable struct {
	available  RegionSet // regions that are neither drained nor dead
	ramps      []float64 // by region: the fraction of its capacity that it takes, 1 unless it is returning
	supplies   [][]supply
	modelCount int
}

func newCapacityTable(in *PlanInput, index *fleetIndex) *capacityTable {
	n := len(index.regions)
	c := &capacityTable{ramps: make([]float64, n), supplies: make([][]supply, n), modelCount: index.modelCount()}
	typical := slowestWorkerRates(in.Regions, index)
	for r := range n {
		c.ramps[r], c.supplies[r] = 1, make([]supply, c.modelCount)
		if r >= len(in.Regions) {
			continue
		}
		st := &in.Regions[r]
		c.ramps[r] = st.rampShare()
		if !st.Drained && !st.Dead {
			c.available.Add(r)
		}
		if st.Unhealthy {
			continue // as if it had no worker
		}
		for i := range st.Models {
			k := index.modelIndexes[st.Models[i].Name]
			c.supplies[r][k] = newSupply(&index.regions[r], &st.Models[i], c.ramps[r], typical[k])
		}
	}
	return c
}

// slowestWorkerRates is, by model, the rate of one worker in the region with the slowest workers, in tokens/s. It is
// used for warm workers of regions without a ready one, whose rates are unknown.
func slowestWorkerRates(regions []RegionState, index *fleetIndex) []float64 {
	out := make([]float64, index.modelCount())
	for i := range regions {
		for k := range regions[i].Models {
			m := &regions[i].Models[k]
			rate := clampAmount(m.Rate) / max(1, clampAmount(m.Ready))
			if at := &out[index.modelIndexes[m.Name]]; rate > 0 && (*at == 0 || rate < *at) {
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

// bookDemand takes capacity for demand without a choice, in tokens/s.
func (c *capacityTable) bookDemand(r, m int, rate float64) { c.supplies[r][m].bookedRate += rate }

// canServe reports whether any region with a finite cost has workers for model m.
func (c *capacityTable) canServe(costs []float64, m int) bool {
	for r := range costs {
		if !math.IsInf(costs[r], 1) && c.supplies[r][m].totalRate > 0 {
			return true
		}
	}
	return false
}

// servableShare is the fraction of a demand, in tokens/s by model, that region r's ready and warm workers serve within
// its share, at most 1. Without demand it is 1.
func (c *capacityTable) servableShare(r int, demand []float64) float64 {
	out := 1.0
	for m, rate := range demand {
		if rate > 0 {
			out = math.Min(out, math.Max(0, c.supplies[r][m].steeredRoom())/rate)
		}
	}
	return out
}

// capacityShares is each region's fraction of the capacity for the unit's models; nil when no region has any.
func (c *capacityTable) capacityShares(u *demandUnit) []float64 {
	out, sum := make([]float64, len(c.supplies)), 0.0
	for r := range out {
		if math.IsInf(u.costs[r], 1) {
			continue
		}
		for _, n := range u.demands {
			out[r] += c.supplies[r][n.model].totalRate * (n.rate / u.totalRate) * c.ramps[r]
		}
		sum += out[r]
	}
	if !(sum > 0) {
		return nil
	}
	for r := range out {
		out[r] /= sum
	}
	return out
}

// moveCost is the cost of moving a client of model m to another region, in seconds: the time in which a worker
// recomputes its cached context, as the mean over the regions.
func (c *capacityTable) moveCost(sessionTokens, m int) float64 {
	if sessionTokens <= 0 {
		return 0
	}
	sum, n := 0.0, 0.0
	for r := range c.supplies {
		if s := &c.supplies[r][m]; s.workerRate > 0 {
			sum += s.prefillSeconds(sessionTokens)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// readyRate is the rate of region r for the models that serves marks, in tokens/s.
func (c *capacityTable) readyRate(r int, serves []bool) float64 {
	sum := 0.0
	for m := range c.supplies[r] {
		if serves[m] {
			sum += c.supplies[r][m].readyRate
		}
	}
	return sum
}

// totalRate is readyRate including warm workers.
func (c *capacityTable) totalRate(r int, serves []bool) float64 {
	sum := 0.0
	for m := range c.supplies[r] {
		if serves[m] {
			sum += c.supplies[r][m].totalRate
		}
	}
	return sum
}

// meanWait is the wait of region r for the models that serves marks, weighted by rate and rounded to 5 ms so that it
// does not jitter.
func (c *capacityTable) meanWait(r int, serves []bool) float64 {
	sum, rate := 0.0, c.readyRate(r, serves)
	if rate == 0 {
		return 0
	}
	for m := range c.supplies[r] {
		if s := &c.supplies[r][m]; serves[m] {
			sum += s.wait * (s.readyRate / rate)
		}
	}
	return math.Round(sum*200) / 200
}

// regionLoads is the load of each region by model, in tokens/s, under the given shares of the units.
func (c *capacityTable) regionLoads(units []demandUnit, shares func(*demandUnit) []float64) [][]float64 {
	out := make([][]float64, len(c.supplies))
	all := make([]float64, len(c.supplies)*c.modelCount)
	for r := range out {
		out[r] = all[r*c.modelCount : (r+1)*c.modelCount]
		for m := range out[r] {
			if c.supplies[r][m].totalRate > 0 {
				out[r][m] = c.supplies[r][m].bookedRate
			}
		}
	}
	for i := range units {
		u := &units[i]
		if u.fixed {
			continue // already booked
		}
		for r, f := range shares(u) {
			if f > 0 {
				c.addLoad(out[r], u, r, f)
			}
		}
	}
	return out
}

// addLoad adds a part of the unit to the load of region r, by model. Models that the region lacks are sent to a peer,
// which the unit's cost includes.
func (c *capacityTable) addLoad(load []float64, u *demandUnit, r int, part float64) {
	for _, n := range u.demands {
		if c.supplies[r][n.model].totalRate > 0 {
			load[n.model] += part * n.rate
		}
	}
}
