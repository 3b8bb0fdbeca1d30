package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// Scenario is one run: a fleet, what is asked of it, and how it decides.
type Scenario struct {
	// Fleet that serves.
	Fleet Fleet
	// Workload that is asked; it is used up by the run. load.Feed is one.
	Workload Workload
	// Models are the names of the models that the workload numbers; empty: every request is for the fleet's one model.
	Models []string
	// Tenants are the names of the tenants that the workload numbers; empty: everybody is one tenant.
	Tenants []string
	// Policy by which workers are chosen, one of Policies; empty: the spec's, and by default predictive. A rival's stands in the
	// place of all tiers: clients go to the balancer of their own region, and neither gateways nor steering are there.
	Policy string
	// Spec is the operator's: classes, targets, tenants, routing. Nil means defaults.
	Spec *spec.Spec
	// Class of a request; nil: every request is interactive.
	Class func(*load.Request) spec.Class
	// Anonymous keeps from deciders whose a request is and of what class, so that it is served in the order of arrival. It is
	// counted as its tenant's all the same.
	Anonymous bool
	// Threshold refuses what arrives while so many requests are under way in the fleet, before anybody decides anything: the
	// hard limit that admission is compared with. 0 is none.
	Threshold int
	// Limits says what output limit a request names, in tokens; nil: none names any, and the router must guess.
	Limits func(*load.Request) int
	// Seed of all chance in the fleet. The workload has its own.
	Seed uint64
	// Staleness of what deciders know.
	Staleness Staleness
	// EstimateError is how far deciders' estimates of a prompt's length are off: each is its length times or over up to
	// 1+EstimateError, as a zone has it that divides bytes before an engine has counted tokens. 0: they are exact.
	EstimateError float64
	// Duration is for how long requests arrive. What is under way then may finish within Grace.
	Duration time.Duration
	// Grace is how long after Duration the last answers are waited for; what is not over then counts as unfinished.
	// Default 5m.
	Grace time.Duration
	// WarmUp is how long after the start measuring begins. Requests due before are served and not measured.
	WarmUp time.Duration
	// SLO by which goodput is counted.
	SLO SLO
	// Told has clients name the SLO's times to first token and between tokens in each request's head, as x-slo-ttft-ms and
	// x-slo-tpot-ms do. Without it deciders go by their spec's targets.
	Told bool
	// Every is the step of the series; default a hundredth of Duration, and no less than 1s.
	Every time.Duration
	// Gateways puts a gateway before the zones also where there is one only. Several always have one in each region.
	Gateways bool
	// Apart keeps each region's requests to itself, where the scenario has no spec of its own.
	Apart bool
	// Network between clients, regions and zones, where there are gateways.
	Network Network
	// Steering of clients to regions.
	Steering Steering
	// Faults in any order.
	Faults []Fault
	// PrefixIndex bounds the memory of each zone's prefix index, in bytes. Default 128 MiB, as in production.
	PrefixIndex int
	// OnDecision is told of each placement, in order; nil: nobody.
	OnDecision func(Decision)

	// What a test that plays a run beside an Agent wants as that has it.
	noise func(worker int) *rand.Rand // of the workers' steps; nil: by Seed
	key   func(*load.Request) uint64  // what consistent_hash keeps a request together by; nil: by its Session
	warms bool                        // workers are looked at again only after their first request, which warms them; else that was long ago
}

// Workload hands out requests in order of time and is told of their ends. See load.Feed.
type Workload interface {
	Peek() (at time.Duration, ok bool, err error)
	Pop() *load.Request
	Ended(r *load.Request, at time.Duration, ok bool)
}

// Fleet is where the workers are.
type Fleet struct {
	Regions []Region
}

// Region is a place.
type Region struct {
	Name string
	// Lat and Lon are where it is, in degrees.
	Lat, Lon float64
	Zones    []Zone
	// Gateways are the instances of the regional tier, where there is one. Default 1.
	Gateways int
}

// Zone is a failure domain: workers, and the local tier before them.
type Zone struct {
	Name   string
	Groups []Group
	// Locals are the instances of the local tier, among which the workers are divided. Default 1; several need Gateways.
	Locals int
}

// Group is so many equal workers.
type Group struct {
	// Count of them, at least 1.
	Count int
	// GPU and Model as gpu.Lookup knows them; TP is how many GPUs work as one, 0 for the fewest that hold the model.
	GPU, Model string
	TP         int
	// Limits of the engine; zero fields are the engine's own defaults.
	Limits gpu.Limits
	// Slowdown makes its steps take so many times as long, without the router being told; 0 is 1.
	Slowdown float64
	// Blocks overrides the KV cache, in blocks of gpu.BlockTokens tokens; 0: what fits beside the weights.
	Blocks int
	// HostBlocks is how many blocks the host's memory takes of what leaves the GPU's; 0 is no such tier.
	HostBlocks int
}

// Steering is how clients come to a region.
type Steering struct {
	// On has resolvers ask the global tier. Without it every client goes to the gateway of its own region.
	On bool
	// Nodes are the regions in which the global tier has a node, in the order in which they would lead. Default: the first
	// three.
	Nodes []string
	// TTL of answers, where the scenario has no spec of its own. Default 30s.
	TTL time.Duration
	// Election is how long nobody leads the global tier after its leader is gone or no longer meets a majority. 0: a leader is there
	// as soon as a majority meets. Production's heartbeat of a second makes it about two.
	Election time.Duration
	// Resolvers of each region's clients, each with a cache and a network of its own. Default 50.
	Resolvers int
}

func (s *Steering) resolvers() int {
	if s.Resolvers > 0 {
		return s.Resolvers
	}
	return 50
}

// Staleness is how old what deciders know may be.
type Staleness struct {
	// Scrape is the interval between two looks at a worker, jittered by a tenth. Default 1s, as in production.
	Scrape time.Duration
	// Delay is how old what a worker's page says is when it is read.
	Delay time.Duration
}

// SLO is what counts as good. Zero bounds are not looked at; a request that was refused or broke off is never good.
type SLO struct {
	// TTFT is the time to first token as the client sees it, TPOT the mean time between tokens of one answer, E2E the time
	// to the last token.
	TTFT, TPOT, E2E time.Duration
}

// Decision is one placement of a request at a worker.
type Decision struct {
	At                   time.Duration
	Request              uint64 // load.Request.ID
	Region, Zone, Worker string
	// Local is the instance that decided, Gateway the one that took the request from its client; empty where there is none.
	Local, Gateway string
	// Ask numbers the times that the client asked for this request, for a client whose gateway died asks again. Made is how
	// many tokens of the answer earlier workers had made: above 0 the worker continues a stream that broke off.
	Ask, Made int
	// Reason, Seconds and Cached as in pick.Verdict.
	Reason  string
	Seconds float64
	Cached  int64
}

const (
	maxWorkers   = 50_000
	maxInstances = 16
	defaultGrace = 5 * time.Minute
	// maxEstimateError is that of estimates which are a tenth or ten times of what is so.
	maxEstimateError = 9
)

// check finds what makes no run, and says what to write instead.
func (s *Scenario) check() error {
	if s.Workload == nil {
		return errors.New("the scenario has no workload: give it one, such as load.NewFeed of a trace")
	}
	if s.Duration <= 0 || s.Duration > 30*24*time.Hour {
		return fmt.Errorf("duration %v: use more than 0 and at most 30 days", s.Duration)
	}
	if s.WarmUp < 0 || s.WarmUp >= s.Duration {
		return fmt.Errorf("warm-up %v: use 0 or more, and less than the duration %v, or nothing would be measured", s.WarmUp, s.Duration)
	}
	if s.Grace < 0 || s.Staleness.Scrape < 0 || s.Staleness.Delay < 0 || s.Every < 0 || s.SLO.TTFT < 0 || s.SLO.TPOT < 0 || s.SLO.E2E < 0 {
		return errors.New("grace, staleness, series and SLO: no time may be negative")
	}
	if s.Staleness.Scrape > 0 && s.Staleness.Scrape < time.Millisecond {
		return fmt.Errorf("scrape every %v: use 1ms or more", s.Staleness.Scrape)
	}
	if err := CheckPolicy(s.Policy); err != nil {
		return err
	}
	if l := s.Network.Loss; !(l >= 0 && l < 1) {
		return fmt.Errorf("loss %v: use 0 or more, and less than 1", l)
	}
	if s.Network.Access < 0 || s.Network.Inside < 0 || s.Steering.TTL < 0 || s.Steering.Resolvers < 0 || s.Steering.Resolvers > 65536 || s.PrefixIndex < 0 {
		return errors.New("network, steering and prefix index: nothing may be negative, and a region has 65536 resolvers at most")
	}
	if t := s.Steering.TTL; t != 0 && (t < 5*time.Second || t > time.Hour) {
		return fmt.Errorf("a TTL of %v: use 5s to 1h, as a spec must", t)
	}
	if e := s.EstimateError; !(e >= 0 && e <= maxEstimateError) {
		return fmt.Errorf("an estimate error of %v: use 0 to %v", e, maxEstimateError)
	}
	if s.Threshold < 0 {
		return fmt.Errorf("a threshold of %d requests: use 1 or more, or 0 for none", s.Threshold)
	}
	if err := s.Fleet.check(); err != nil {
		return err
	}
	if d := s.Steering.Election; d < 0 || d > time.Minute {
		return fmt.Errorf("an election that takes %v: use 0s to 1m", d)
	}
	for i, name := range s.Steering.Nodes {
		if s.Fleet.region(name) == nil || slices.Contains(s.Steering.Nodes[:i], name) {
			return fmt.Errorf("steering: nodes of the global tier in %q: name regions of the fleet, each once", s.Steering.Nodes)
		}
	}
	for i := range s.Faults {
		if err := s.Faults[i].check(&s.Fleet); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	return nil
}

func (f *Fleet) check() error {
	if len(f.Regions) == 0 {
		return errors.New("the fleet has no region: give it one with a zone and a group of workers")
	}
	regions, total := map[string]bool{}, 0
	for i := range f.Regions {
		r := &f.Regions[i]
		if r.Name == "" || regions[r.Name] {
			return fmt.Errorf("region %d is called %q: give each region a name of its own", i+1, r.Name)
		}
		regions[r.Name] = true
		if !(math.Abs(r.Lat) <= 90) || !(math.Abs(r.Lon) <= 180) {
			return fmt.Errorf("region %s lies at %v, %v: use degrees, -90 to 90 and -180 to 180", r.Name, r.Lat, r.Lon)
		}
		if len(r.Zones) == 0 {
			return fmt.Errorf("region %s has no zone: give it one with a group of workers, or leave the region out", r.Name)
		}
		if r.Gateways < 0 || r.Gateways > maxInstances {
			return fmt.Errorf("region %s has %d gateways: use 1 to %d", r.Name, r.Gateways, maxInstances)
		}
		zones := map[string]bool{}
		for k := range r.Zones {
			z := &r.Zones[k]
			if z.Name == "" || zones[z.Name] {
				return fmt.Errorf("zone %d of region %s is called %q: give each zone a name of its own", k+1, r.Name, z.Name)
			}
			zones[z.Name] = true
			n, err := z.check()
			if err != nil {
				return fmt.Errorf("zone %s/%s: %w", r.Name, z.Name, err)
			}
			total += n
		}
	}
	if total == 0 {
		return errors.New("the fleet has no worker: give a zone a group with a count of 1 or more")
	}
	if total > maxWorkers {
		return fmt.Errorf("the fleet has %d workers, and %d are simulated at most: keep one of every k regions' workers and sessions (thinning)", total, maxWorkers)
	}
	return nil
}

func (z *Zone) check() (workers int, err error) {
	if z.Locals < 0 || z.Locals > maxInstances {
		return 0, fmt.Errorf("%d instances of the local tier: use 1 to %d", z.Locals, maxInstances)
	}
	for i := range z.Groups {
		g := &z.Groups[i]
		if g.Count < 1 {
			return 0, fmt.Errorf("group %d counts %d workers: use 1 or more", i+1, g.Count)
		}
		if g.Slowdown < 0 || g.Slowdown > 1000 || g.Slowdown != g.Slowdown {
			return 0, fmt.Errorf("group %d: slowdown %v: use 0.01 to 1000", i+1, g.Slowdown)
		}
		if g.Blocks < 0 || g.HostBlocks < 0 {
			return 0, fmt.Errorf("group %d: %d blocks and %d in the host's memory: use 0 or more", i+1, g.Blocks, g.HostBlocks)
		}
		if _, err := gpu.Lookup(g.GPU, g.Model, g.TP); err != nil {
			return 0, fmt.Errorf("group %d: %w", i+1, err)
		}
		workers += g.Count
	}
	if workers > pick.MaxWorkers {
		return 0, fmt.Errorf("%d workers: one zone takes %d: split it", workers, pick.MaxWorkers)
	}
	return workers, nil
}

// GPU is the group's GPU as an operator declares it.
func (g *Group) declared(p *gpu.Profile) string {
	if p.TP > 1 {
		return fmt.Sprintf("%sx%d", p.GPU, p.TP)
	}
	return p.GPU
}
