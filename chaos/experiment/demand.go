package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// PlanDemand is the input of a capacity plan.
type PlanDemand struct {
	// Sites are the regions with their zones and type of workers.
	Sites []PlanSite
	// Workload of the clients; its regions are filled in.
	Workload load.Workload
	// Model that the workers serve, and Policy that chooses them.
	Model, Policy string
	// Goals that must be met for the clients of each region.
	Goals []LatencyGoal
	// Duration is how long requests arrive, WarmUp the initial part that is not measured.
	Duration, WarmUp time.Duration
	// MaxWorkers bounds the workers of one region that are tried. Default 512.
	MaxWorkers int
	// Seed of all randomness.
	Seed uint64
	// OnProgress, which may be nil, is called with the approximate fraction done.
	OnProgress func(done float64)
}

// PlanSite is a region that may have workers.
type PlanSite struct {
	Name     string
	Zones    []string
	Lat, Lon float64
	// Share of the clients that are located there, relative to the other regions.
	Share float64
	// GPU of its workers, and the number of GPUs in tensor parallelism (TP); 0: the fewest that hold the model.
	GPU string
	TP  int
	// Dollars per GPU and hour; 0: the usual price.
	Dollars float64
}

// LatencyGoal is a bound on a figure, such as ttft_p99 within 2s.
type LatencyGoal struct {
	Figure string
	Within time.Duration
}

// ParseGoal parses ttft_p99=2s.
func ParseGoal(text string) (LatencyGoal, error) {
	name, bound, ok := strings.Cut(text, "=")
	g := LatencyGoal{Figure: strings.TrimSpace(name)}
	m, known := findMetric(g.Figure)
	if !ok || !known || m.unit != "s" || m.ofPart == nil {
		return g, fmt.Errorf("%q is no goal: write a time and its bound, such as ttft_p99=2s, tpot_p99=100ms or e2e_p50=10s", text)
	}
	var err error
	if g.Within, err = time.ParseDuration(strings.TrimSpace(bound)); err != nil || g.Within <= 0 {
		return g, fmt.Errorf("%q has no bound: write a time above zero with its unit, such as ttft_p99=2s", text)
	}
	return g, nil
}

// regionFeed is the requests of one region's clients only.
type regionFeed struct {
	*load.Feed
	region int32
}

// Peek skips the requests of other regions.
func (n *regionFeed) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := n.Feed.Peek()
		if !ok || err != nil || n.Feed.Head().Region == n.region {
			return at, ok, err
		}
		n.Feed.Pop()
	}
}

// Pop returns requests with region 0, because there is no other.
func (n *regionFeed) Pop() *load.Request {
	r := n.Feed.Pop()
	if r != nil {
		r.Region = 0
	}
	return r
}
