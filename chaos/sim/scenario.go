package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Scenario is one run: a fleet, a workload, and the configuration of the deciders.
type Scenario struct {
	// Fleet that serves.
	Fleet Fleet
	// Workload of requests, such as load.Feed. The run consumes it.
	Workload Workload
	// Models are the names of the models that the workload numbers; empty: every request is for the fleet's only
	// model.
	Models []string
	// Tenants are the names of the tenants that the workload numbers; empty: there is one tenant.
	Tenants []string
	// Policy that chooses workers, one of PolicyNames; empty: the spec's, and by default predictive. A baseline
	// replaces all tiers: clients send to the balancer of their own region, without gateways and steering.
	Policy string
	// Spec is the operator's: classes, targets, tenants, routing. Nil means defaults.
	Spec *spec.Spec
	// ClassOf is the class of a request; nil: every request is interactive.
	ClassOf func(*load.Request) spec.Class
	// HideTenants hides tenant and class of requests from deciders, so that they are served in the order of arrival.
	// Results are still counted by tenant.
	HideTenants bool
	// MaxInflight refuses requests while this many are in flight in the fleet, before any decider: the hard limit
	// that admission is compared with. 0 is none.
	MaxInflight int
	// OutputLimit is the output limit of a request, in tokens; nil: requests have none, and the router must estimate.
	OutputLimit func(*load.Request) int
	// Seed of all randomness in the fleet. The workload has its own.
	Seed uint64
	// Staleness of the deciders' information.
	Staleness ScrapeStaleness
	// EstimateError is the error of estimated prompt lengths: each is its length multiplied or divided by up to
	// 1+EstimateError, as in a zone that divides bytes before an engine has counted tokens. 0: exact.
	EstimateError float64
	// Duration is how long requests arrive. Running requests may then finish within GracePeriod.
	Duration time.Duration
	// GracePeriod is how long after Duration the run waits for answers; requests still running then count as
	// unfinished.
	// Default 5m.
	GracePeriod time.Duration
	// WarmUp is the time from the start to the first measured request. Requests due before are served and not
	// measured.
	WarmUp time.Duration
	// SLO for goodput.
	SLO GoodputSLO
	// SendSLO makes clients send the SLO's TTFT and TPOT in each request, as x-slo-ttft-ms and x-slo-tpot-ms do.
	// Otherwise deciders use the targets of their spec.
	SendSLO bool
	// SampleInterval is the interval of the series; default a hundredth of Duration, and at least 1s.
	SampleInterval time.Duration
	// AlwaysGateways adds gateways even for a single zone. Several zones always have one in each region.
	AlwaysGateways bool
	// IsolateRegions keeps each region's requests in it, if the scenario has no spec of its own.
	IsolateRegions bool
	// Network between clients, regions and zones, if there are gateways.
	Network NetworkModel
	// Steering of clients to regions.
	Steering SteeringConfig
	// Faults in any order.
	Faults []Fault
	// PrefixIndexBytes bounds the memory of each zone's prefix index, in bytes. Default 128 MiB, as in production.
	PrefixIndexBytes int
	// OnObservation is called for everything that an observer of the run could record, in order; nil: not called.
	OnObservation func(Observation)
	// OnDecision is called for each placement, in order; nil: not called.
	OnDecision func(PlacementDecision)

	// For tests that compare a run with an Agent.
	stepNoise         func(worker int) *rand.Rand // noise of the workers' steps; nil: by Seed
	affinityKey       func(*load.Request) uint64  // affinity key of consistent_hash; nil: the session
	scrapeAfterWarmUp bool                        // workers are scraped again only after their warm-up request; otherwise that was long ago
}

// Workload provides requests in order of time and is notified of their ends. See load.Feed.
type Workload interface {
	Peek() (at time.Duration, ok bool, err error)
	Pop() *load.Request
	FinishRequest(r *load.Request, at time.Duration, ok bool)
}

// SteeringConfig configures how clients find a region.
type SteeringConfig struct {
	// Enabled makes resolvers query the global tier. Otherwise every client uses the gateway of its own region.
	Enabled bool
	// Nodes are the regions with a global node, in the order in which they would lead. Default: the first three.
	Nodes []string
	// TTL of answers, if the scenario has no spec of its own. Default 30s.
	TTL time.Duration
	// ElectionTime is how long the global tier has no leader after the leader is lost or no longer reaches a
	// majority. 0: there is a leader as soon as a majority is connected. With production's heartbeat of 1 s it is
	// about two seconds.
	ElectionTime time.Duration
	// HoldAnswers makes resolvers keep an answer at least this long, also with a shorter TTL. 0: they keep the TTL.
	HoldAnswers time.Duration
	// Resolvers of each region's clients, each with its own cache and network. Default 50.
	Resolvers int
}

// nodeCount is the number of global nodes.
func (s *SteeringConfig) nodeCount(f *Fleet) int {
	if len(s.Nodes) > 0 {
		return len(s.Nodes)
	}
	return min(defaultNodes, len(f.Regions))
}

func (s *SteeringConfig) resolverCount() int {
	if s.Resolvers > 0 {
		return s.Resolvers
	}
	return 50
}

// ScrapeStaleness is the age of the deciders' information.
type ScrapeStaleness struct {
	// Interval between two scrapes of a worker, jittered by a tenth. Default 1s, as in production.
	Interval time.Duration
	// Delay is the age of a reading when it arrives.
	Delay time.Duration
}

// GoodputSLO is the condition for goodput. Zero bounds are not checked; a request that was refused or cut is never
// good.
type GoodputSLO struct {
	// TTFT is the time to first token as seen by the client, TPOT the mean time between tokens of one answer, E2E the
	// time to the last token.
	TTFT, TPOT, E2E time.Duration
}

// PlacementDecision is one placement of a request at a worker.
type PlacementDecision struct {
	At                   time.Duration
	RequestID            uint64 // load.Request.ID
	Region, Zone, Worker string
	// LocalInstance is the instance that decided, Gateway the one that received the request from its client; empty if
	// there is none.
	LocalInstance, Gateway string
	// ClientTry numbers the client's sends of this request, because a client whose gateway died sends again.
	// PriorTokens is the number of tokens by earlier workers: above 0 the worker resumes a cut stream.
	ClientTry, PriorTokens int
	// Reason and the following fields as in pick.Choice.
	Reason           string
	PredictedSeconds float64
	PredictedCached  int64
}

const (
	maxWorkers   = 50_000
	maxInstances = 16
	defaultGrace = 5 * time.Minute
	// maxEstimateError is that of estimates off by a factor of ten.
	maxEstimateError = 9
)

// checkScenario returns an error for an invalid scenario that names what to change.
func (s *Scenario) checkScenario() error {
	if s.Workload == nil {
		return errors.New("the scenario has no workload: give it one, such as load.NewFeed of a trace")
	}
	if s.Duration <= 0 || s.Duration > 30*24*time.Hour {
		return fmt.Errorf("duration %v: use more than 0 and at most 30 days", s.Duration)
	}
	if s.WarmUp < 0 || s.WarmUp >= s.Duration {
		return fmt.Errorf("warm-up %v: use 0 or more, and less than the duration %v, or nothing would be measured", s.WarmUp, s.Duration)
	}
	if s.GracePeriod < 0 || s.Staleness.Interval < 0 || s.Staleness.Delay < 0 || s.SampleInterval < 0 || s.SLO.TTFT < 0 || s.SLO.TPOT < 0 || s.SLO.E2E < 0 {
		return errors.New("grace, staleness, series and SLO: no time may be negative")
	}
	if s.Staleness.Interval > 0 && s.Staleness.Interval < time.Millisecond {
		return fmt.Errorf("scrape every %v: use 1ms or more", s.Staleness.Interval)
	}
	if err := CheckPolicy(s.Policy); err != nil {
		return err
	}
	if l := s.Network.Loss; !(l >= 0 && l < 1) {
		return fmt.Errorf("loss %v: use 0 or more, and less than 1", l)
	}
	if s.Network.AccessRTT < 0 || s.Network.ZoneRTT < 0 || s.Steering.TTL < 0 || s.Steering.Resolvers < 0 || s.Steering.Resolvers > 65536 || s.PrefixIndexBytes < 0 {
		return errors.New("network, steering and prefix index: nothing may be negative, and a region has 65536 resolvers at most")
	}
	if t := s.Steering.TTL; t != 0 && (t < 5*time.Second || t > time.Hour) {
		return fmt.Errorf("a TTL of %v: use 5s to 1h, as a spec must", t)
	}
	if e := s.EstimateError; !(e >= 0 && e <= maxEstimateError) {
		return fmt.Errorf("an estimate error of %v: use 0 to %v", e, maxEstimateError)
	}
	if s.MaxInflight < 0 {
		return fmt.Errorf("a threshold of %d requests: use 1 or more, or 0 for none", s.MaxInflight)
	}
	if err := s.Fleet.checkFleet(); err != nil {
		return err
	}
	if d := s.Steering.ElectionTime; d < 0 || d > time.Minute {
		return fmt.Errorf("an election that takes %v: use 0s to 1m", d)
	}
	for i, name := range s.Steering.Nodes {
		if s.Fleet.findRegion(name) == nil || slices.Contains(s.Steering.Nodes[:i], name) {
			return fmt.Errorf("steering: nodes of the global tier in %q: name regions of the fleet, each once", s.Steering.Nodes)
		}
	}
	for i := range s.Faults {
		if err := s.Faults[i].checkFault(&s.Fleet, s.Steering.nodeCount(&s.Fleet)); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	return nil
}

// defaultServiceName is the name that clients resolve if the scenario's spec has none.
const defaultServiceName = "chat.spillway.test."

// defaultLatitude is the latitude of a region without a location, because a spec requires one.
const defaultLatitude = 0.01

// hasUpperTiers reports whether the scenario has tiers above zones.
func (s *Scenario) hasUpperTiers() bool {
	f := s.Fleet.Regions
	return s.AlwaysGateways || len(f) > 1 || len(f[0].Zones) > 1 || f[0].Gateways > 1 || f[0].Zones[0].Locals > 1
}

// fleetSpec is the spec of the run: the scenario's, or with gateways a minimal one.
func fleetSpec(s *Scenario, reader *requestReader) (*spec.Spec, error) {
	sp := s.Spec
	if !s.hasUpperTiers() || IsBaseline(s.Policy) {
		return sp, nil
	}
	if sp == nil {
		var err error
		if sp, err = spec.Decode("the scenario's own spec", []byte(s.defaultSpecText())); err != nil {
			return nil, fmt.Errorf("making a spec of the fleet: %w", err)
		}
	}
	for i := range s.Fleet.Regions {
		if sp.FindRegion(s.Fleet.Regions[i].Name) == nil {
			return nil, fmt.Errorf("the spec does not list the fleet's region %s: add it under regions, or leave the spec out", s.Fleet.Regions[i].Name)
		}
	}
	if len(sp.Regions) != len(s.Fleet.Regions) {
		return nil, fmt.Errorf("the spec lists %d regions and the fleet has %d: list the same", len(sp.Regions), len(s.Fleet.Regions))
	}
	for _, t := range append([]string{reader.tenantName(0)}, s.Tenants...) {
		if sp.FindTenant(t) == nil {
			return nil, fmt.Errorf("the spec knows no tenant %s: declare it under tenants, or leave the spec out", t)
		}
	}
	return sp, nil
}

// defaultSpecText is a minimal spec that serves the fleet's models to all tenants.
func (s *Scenario) defaultSpecText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "zone:\n  name: spillway.test.\n  nameservers: [{name: ns1.spillway.test., addresses: [192.0.2.1]}]\n")
	ttl := s.Steering.TTL
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	fmt.Fprintf(&b, "services:\n  - {name: %s, ttl: %s}\nregions:\n", defaultServiceName, ttl)
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		var zones []string
		for k := range f.Zones {
			zones = append(zones, f.Zones[k].Name)
		}
		if f.Lat == 0 && f.Lon == 0 {
			f.Lat = defaultLatitude
		}
		var gateways []string
		for k := range max(f.Gateways, 1) {
			host := fmt.Sprintf("10.%d.%d.%d", 2+k, i/250, i%250+1)
			gateways = append(gateways, fmt.Sprintf("{name: %s, addresses: [%q], url: \"http://%s:8080\"}", instanceName(f.Name+"-gw", k, f.Gateways), host, host))
		}
		fmt.Fprintf(&b, "  - {name: %s, place: {lat: %g, lon: %g}, zones: [%s], gateways: [%s]}\n",
			f.Name, f.Lat, f.Lon, strings.Join(zones, ", "), strings.Join(gateways, ", "))
	}
	if s.IsolateRegions {
		b.WriteString("routing: {spill: false}\n")
	}
	b.WriteString("models:\n")
	for _, m := range s.Fleet.servedModels() {
		fmt.Fprintf(&b, "  - {name: %s}\n", m)
	}
	b.WriteString("tenants:\n")
	names := s.Tenants
	if len(names) == 0 {
		names = []string{spec.DefaultTenant}
	}
	for _, t := range names {
		fmt.Fprintf(&b, "  - {name: %s, keys: [%q]}\n", t, spec.HashKey("sk-lab-"+t))
	}
	return b.String()
}

// splitMix64 is the finalizer of splitmix64.
func splitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
