package global

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// What networks ask for is steadied as demand is. One that makes few requests trembles by half of itself, and leaves its
// gateways' lists and comes back: a plan that followed would pin it here and there without end. It is what each has of
// all that lasts: together they tremble little, and ask for what they are told to ask for.
const (
	networkWindow = 30 * time.Second // that gateways take networks' rates over
	// lastingRequests are how many a figure is a mean of, as far as the longest time constant allows.
	lastingRequests = 30
	longest         = 5 * time.Minute
	// networkStays is how long a network that is not told any more is counted on, less and less.
	networkStays = 2 * time.Minute
	// maxCrowd bounds the networks that are remembered. Beyond it only those that are told are.
	maxCrowd = 8192
)

type networkKey struct {
	service, cell string
	network       uint64
}

type cellKey struct{ service, cell string }

// crowd is a planner's heavy networks, over all regions that they arrive in. The zero crowd is ready.
type crowd struct {
	rates steadies[networkKey]
	told  map[networkKey]time.Time // when each was last
}

// calm takes what is told and returns what lasts of it, in ascending order. tokens is what a request of a cell comes to.
func (c *crowd) calm(heavy []steer.Heavy, tokens map[cellKey]float64, now time.Time) []steer.Heavy {
	sums := make(map[networkKey]float64, len(heavy))
	for _, h := range heavy {
		sums[networkKey{h.Service, h.Cell, h.Network}] += h.Rate
	}
	if len(heavy) == 0 { // nodes that do not read pins are among the others
		*c = crowd{}
		return nil
	}
	c.keep(sums, now)
	out := make([]steer.Heavy, 0, len(c.told))
	for k := range c.told {
		out = append(out, steer.Heavy{Service: k.service, Cell: k.cell, Network: k.network, Rate: c.next(k, sums[k], tokens[cellKey{k.service, k.cell}], now)})
	}
	slices.SortFunc(out, func(a, b steer.Heavy) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Network, b.Network))
	})
	read, lasts := map[cellKey]float64{}, map[cellKey]float64{}
	for _, h := range out { // in order, for sums of floats depend on it and the same statements shall make the same plan
		k := cellKey{h.Service, h.Cell}
		read[k] += sums[networkKey{h.Service, h.Cell, h.Network}]
		lasts[k] += h.Rate
	}
	for i := range out {
		if k := (cellKey{out[i].Service, out[i].Cell}); lasts[k] > 0 {
			out[i].Rate *= read[k] / lasts[k]
		}
	}
	return out
}

// keep notes who is told and forgets those that have not been for long.
func (c *crowd) keep(sums map[networkKey]float64, now time.Time) {
	next, all := make(map[networkKey]time.Time, len(sums)), make(map[networkKey]bool, len(sums))
	for k := range sums {
		next[k], all[k] = now, true
	}
	for k, t := range c.told {
		if _, is := next[k]; !is && now.Sub(t) < networkStays && len(next) < maxCrowd {
			next[k], all[k] = t, true
		}
	}
	c.told = next
	c.rates.keep(all)
}

// next takes a reading of a network and returns what lasts. The fewer requests it makes, the more chance moves what it asks
// for, and the longer it takes to know.
func (c *crowd) next(k networkKey, read, tokens float64, now time.Time) float64 {
	s := c.rates.of(k)
	tolerance := 0.0
	switch {
	case s.value <= 0:
	case tokens <= 0:
		tolerance = math.Inf(1)
	default:
		seconds := tokens / s.value // from one request to the next
		tolerance = chance * math.Sqrt(seconds/networkWindow.Seconds())
		s.over = max(steadyOver, time.Duration(min(lastingRequests*seconds, longest.Seconds())*float64(time.Second)))
	}
	return s.next(read, tolerance, now)
}

// requestTokens is what a request comes to on the mean, by service and cell, in tokens.
func (v *View) requestTokens() map[cellKey]float64 {
	rate, requests := map[cellKey]float64{}, map[cellKey]float64{}
	for r := range v.regions {
		if !v.regions[r].heard || v.regions[r].dead {
			continue
		}
		for _, d := range v.regions[r].group.Summary.Demand {
			x := v.demandOf(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			k := cellKey{x.Service, x.Cell}
			rate[k] += x.Rate
			requests[k] += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	for k := range rate {
		if requests[k] > 0 {
			rate[k] /= requests[k]
		}
	}
	return rate
}
