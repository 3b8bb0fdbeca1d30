package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// Demand is what a fleet is planned for.
type Demand struct {
	// Sites are the regions with their zones and workers' type.
	Sites []Site
	// Workload that is asked; its regions are filled in.
	Workload load.Workload
	// Model that the workers serve, and Policy by which they are chosen.
	Model, Policy string
	// Goals that must be met by the clients of each region.
	Goals []Goal
	// Duration is how long requests arrive, WarmUp how much of the beginning is not measured.
	Duration, WarmUp time.Duration
	// Most workers of one region that are tried. Default 512.
	Most int
	// Seed of all chance.
	Seed uint64
	// Progress, which may be nil, is told what part is done, about.
	Progress func(done float64)
}

// Site is a region that may have workers.
type Site struct {
	Name     string
	Zones    []string
	Lat, Lon float64
	// Share of the clients that are at home there, against the other regions'.
	Share float64
	// GPU of its workers, TP of which work as one; 0: the fewest that hold the model.
	GPU string
	TP  int
	// Dollars per GPU and hour; 0: what is usual.
	Dollars float64
}

// Goal is a bound on a figure, such as ttft_p99 within 2s.
type Goal struct {
	Figure string
	Within time.Duration
}

// ParseGoal reads ttft_p99=2s.
func ParseGoal(text string) (Goal, error) {
	name, bound, ok := strings.Cut(text, "=")
	g := Goal{Figure: strings.TrimSpace(name)}
	m, known := findMetric(g.Figure)
	if !ok || !known || m.unit != "s" || m.part == nil {
		return g, fmt.Errorf("%q is no goal: write a time and its bound, such as ttft_p99=2s, tpot_p99=100ms or e2e_p50=10s", text)
	}
	var err error
	if g.Within, err = time.ParseDuration(strings.TrimSpace(bound)); err != nil || g.Within <= 0 {
		return g, fmt.Errorf("%q has no bound: write a time above zero with its unit, such as ttft_p99=2s", text)
	}
	return g, nil
}
