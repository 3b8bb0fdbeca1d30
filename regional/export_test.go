package regional

import "github.com/spillway-lb/spillway/internal/capacity"

// Workers is how many workers of a model the view that requests choose from counts in this region.
func (g *Gateway) Workers(model string) (n int64) {
	for _, l := range g.view.Load().Locals {
		if m := l.Summary.Model(model); m != nil && l.State != capacity.Lost {
			n += m.Total
		}
	}
	return n
}
