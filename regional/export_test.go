package regional

import "github.com/spillway-lb/spillway/internal/capacity"

// Attempts counts attempts under way whose request is sent whole, and those of them that a queue holds.
func (g *Gateway) Attempts() (sent, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.places {
		for p := range at.flights {
			if p.delivered.Load() {
				sent++
			}
			if p.queued.Load() {
				queued++
			}
		}
	}
	return sent, queued
}

// Workers is how many workers of a model the view that requests choose from counts in this region.
func (g *Gateway) Workers(model string) (n int64) {
	for _, l := range g.view.Load().Locals {
		if m := l.Summary.Model(model); m != nil && l.State != capacity.Lost {
			n += m.Total
		}
	}
	return n
}
