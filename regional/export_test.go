package regional

import "github.com/spillway-lb/spillway/internal/capacity"

// CountAttempts counts attempts in flight whose request is sent completely, and how many of them are queued.
func (g *Gateway) CountAttempts() (sent, queued int) {
	g.router.mu.Lock()
	all := g.router.router.OpenAttempts()
	g.router.mu.Unlock()
	for _, a := range all {
		p := a.Owner.(*gatewayAttempt)
		if p.requestSent.Load() {
			sent++
		}
		if p.queuedBelow.Load() {
			queued++
		}
	}
	return sent, queued
}

// CountReadyWorkers is CountWorkers without those that are not ready.
func (g *Gateway) CountReadyWorkers(model string) (n int64) {
	for _, l := range g.router.view.Load().Locals {
		if m := l.Summary.FindModel(model); m != nil && l.State != capacity.Unreachable {
			n += m.Ready
		}
	}
	return n
}

// CountWorkers returns the number of this region's workers of a model in the view that requests use.
func (g *Gateway) CountWorkers(model string) (n int64) {
	for _, l := range g.router.view.Load().Locals {
		if m := l.Summary.FindModel(model); m != nil && l.State != capacity.Unreachable {
			n += m.Total
		}
	}
	return n
}
