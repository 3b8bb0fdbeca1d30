package experiment

import (
	"fmt"
	"math"
	"slices"
)

// roundValue rounds a value to one that the case can have.
func (c *Case) roundValue(v float64) float64 {
	if c.Vary == "rate" {
		return v
	}
	return math.Round(v)
}

// hasValuesBetween reports whether there is a value between one that meets the SLO and one that does not.
func (c *Case) hasValuesBetween(low, high float64) bool {
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) <= low {
		return false
	}
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) >= high {
		return false
	}
	return high/low > 1+c.Capacity.Within
}

// withValue sets a varied value in a case's workload or fleet.
func (c *Case) withValue(value float64) (Case, error) {
	out := *c
	w := *c.Workload
	out.Workload = &w
	switch c.Vary {
	case "rate":
		w.Rate = value
	case "sessions":
		w.Sessions = roundToCount(value)
	case "clients":
		w.Clients = make([]int, max(len(c.Workload.Clients), 1))
		for i := range w.Clients {
			w.Clients[i] = roundToCount(value)
		}
	case "workers":
		out.Fleet = slices.Clone(c.Fleet)
		for i := range out.Fleet {
			out.Fleet[i].Count = roundToCount(value)
		}
	case "thin":
		w.Thin = roundToCount(value)
		out.Fleet = slices.Clone(c.Fleet)
		for i := range out.Fleet {
			out.Fleet[i].Count = roundToCount(float64(out.Fleet[i].Count) / value)
		}
	default:
		return out, fmt.Errorf("%q cannot be varied: use rate, sessions, clients, workers or thin", c.Vary)
	}
	return out, nil
}
