package planinput

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
)

// The rates of heavy hitters are smoothed like demand. A network with few requests has a relative error near 50 %, so
// it keeps dropping out of its gateways' lists and reappearing; a plan that followed would pin it to changing regions
// without end. The smoothed value is each network's share of the total that persists: the total fluctuates little and
// responds to steering.
const (
	heavyHitterRateWindow = 30 * time.Second // the window in which gateways measure networks' rates
	// averagedRequests is the number of requests that a rate is averaged over, within maxAveragingTime.
	averagedRequests = 30
	maxAveragingTime = 5 * time.Minute
	// heavyHitterForgetTime is the time over which the rate of a network that is no longer reported decays to zero.
	heavyHitterForgetTime = 2 * time.Minute
	// maxHeavyHitters bounds the networks that are kept. Above it only networks in the current reports are kept.
	maxHeavyHitters = 8192
)

type networkKey struct {
	service, cell string
	network       uint64
}

// heavyHitters are a planner's heavy networks, summed over all regions in which their requests arrive. The zero value
// is ready for use.
type heavyHitters struct {
	rates        smoothedValues[networkKey]
	lastReported map[networkKey]time.Time // when each was last reported
}

// smoothRates smooths the reported rates and returns them in ascending order. tokens is the mean size of a request of
// a cell, in tokens.
func (c *heavyHitters) smoothRates(heavy []steer.HeavyHitter, tokens map[snapshot.CellKey]float64, now time.Time) []steer.HeavyHitter {
	sums := make(map[networkKey]float64, len(heavy))
	for _, h := range heavy {
		sums[networkKey{h.Service, h.Cell, h.Network}] += h.Rate
	}
	if len(heavy) == 0 { // nodes that do not read pins are among the others
		*c = heavyHitters{}
		return nil
	}
	c.trackReported(sums, now)
	out := make([]steer.HeavyHitter, 0, len(c.lastReported))
	for k := range c.lastReported {
		out = append(out, steer.HeavyHitter{Service: k.service, Cell: k.cell, Network: k.network, Rate: c.smoothRate(k, sums[k], tokens[snapshot.CellKey{Service: k.service, Cell: k.cell}], now)})
	}
	slices.SortFunc(out, func(a, b steer.HeavyHitter) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Network, b.Network))
	})
	read, lasts := map[snapshot.CellKey]float64{}, map[snapshot.CellKey]float64{}
	for _, h := range out { // in order: sums of floats depend on it, and equal reports must give equal plans
		k := snapshot.CellKey{Service: h.Service, Cell: h.Cell}
		read[k] += sums[networkKey{h.Service, h.Cell, h.Network}]
		lasts[k] += h.Rate
	}
	for i := range out {
		if k := (snapshot.CellKey{Service: out[i].Service, Cell: out[i].Cell}); lasts[k] > 0 {
			out[i].Rate *= read[k] / lasts[k]
		}
	}
	return out
}

// trackReported keeps when each network was last reported and removes networks that were not reported for long.
func (c *heavyHitters) trackReported(sums map[networkKey]float64, now time.Time) {
	next, all := make(map[networkKey]time.Time, len(sums)), make(map[networkKey]bool, len(sums))
	for k := range sums {
		next[k], all[k] = now, true
	}
	for k, t := range c.lastReported {
		if _, is := next[k]; !is && now.Sub(t) < heavyHitterForgetTime && len(next) < maxHeavyHitters {
			next[k], all[k] = t, true
		}
	}
	c.lastReported = next
	c.rates.retainOnly(all)
}

// smoothRate updates a network's smoothed rate and returns it. The fewer requests a network makes, the noisier its
// rate and the longer the time constant.
func (c *heavyHitters) smoothRate(k networkKey, read, tokens float64, now time.Time) float64 {
	s := c.rates.valueFor(k)
	tolerance := 0.0
	switch {
	case s.value <= 0:
	case tokens <= 0:
		tolerance = math.Inf(1)
	default:
		seconds := tokens / s.value // time between two requests
		tolerance = noiseDeviations * math.Sqrt(seconds/heavyHitterRateWindow.Seconds())
		s.timeConstant = max(smoothingTime, time.Duration(min(averagedRequests*seconds, maxAveragingTime.Seconds())*float64(time.Second)))
	}
	return s.updateValue(read, tolerance, now)
}
