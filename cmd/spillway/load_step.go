package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/admin"
)

// The demand step of `load --step`, the same as that of `make step` in virtual time.
const (
	stepLowLoad, stepHighLoad = 0.7, 1.3    // of the region's capacity, before and after the step
	stepWarmUp                = time.Minute // the time before the step
	stepClientCount           = 200         // client networks, each with one resolver
	outputTokenWeight         = 8           // cost of an output token, in prefill tokens
)

// twoPhaseSource returns the arrivals of one source and then those of another.
type twoPhaseSource struct {
	first, second load.ArrivalSource
	switchAt      time.Duration
	firstDone     bool
}

func (s *twoPhaseSource) NextArrival() (load.Arrival, error) {
	if !s.firstDone {
		a, err := s.first.NextArrival()
		if !errors.Is(err, io.EOF) {
			return a, err
		}
		s.firstDone = true
	}
	a, err := s.second.NextArrival()
	a.At += s.switchAt
	return a, err
}

// loadStepRun is one demand step against a running fleet.
type loadStepRun struct {
	*loadOptions
	region          string
	requestCapacity float64 // of the region, in requests/s, from the learned rates of its workers
	dnsWatch        *experiment.ResolverWatch

	mu        sync.Mutex
	result    experiment.StepResult
	startedAt time.Time
}

func (r *loadOptions) runStep(ctx context.Context, out, errOut io.Writer) error {
	net, err := netip.ParsePrefix(r.stepNetwork)
	if err != nil || !net.Addr().Is4() || net.Bits() > 16 || r.service == "" || len(r.nameServers) == 0 || len(r.models) != 1 {
		return errors.New("--step needs --service, --dns, exactly one --model and --client-network with an IPv4 network of /16 or larger\n" +
			"hint: in the demo, --client-network 127.100.0.0/16 is near its first region, virginia")
	}
	s := &loadStepRun{loadOptions: r, region: r.stepRegion}
	home, err := s.discoverRegion(ctx)
	if err != nil {
		return err
	}
	cfg, clients, err := s.prepareStep(net)
	if err != nil {
		return err
	}
	g, err := load.NewGenerator(cfg)
	if err != nil {
		return err
	}
	s.dnsWatch = &experiment.ResolverWatch{Servers: r.nameServers, Name: r.service, Clients: clients, HomeAddrs: home, CountFrom: stepWarmUp}
	fmt.Fprintf(errOut, "capacity of %s is %.1f requests/s: sending %.1f/s for %s, then %.1f/s for %s\n", r.stepRegion, s.requestCapacity, stepLowLoad*s.requestCapacity, stepWarmUp, stepHighLoad*s.requestCapacity, r.duration)
	s.startedAt = time.Now()
	shares := make(chan []float64)
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { shares <- s.dnsWatch.RunUntilDone(watchCtx) }()
	err = g.Run(ctx)
	stop()
	s.computeResult(<-shares)
	return errors.Join(err, experiment.PrintSteps(out, []experiment.StepRow{{Name: "live", Results: []*experiment.StepResult{&s.result}}}))
}

// discoverRegion reads the region's capacity and the addresses of its gateways from a node's status.
func (s *loadStepRun) discoverRegion(ctx context.Context) (home map[netip.Addr]bool, err error) {
	home = map[netip.Addr]bool{}
	err = s.admin.callNode(ctx, func(ctx context.Context, c *admin.Client) error {
		st, err := c.GetStatus(ctx)
		if err != nil {
			return err
		}
		for _, x := range st.Regions {
			if x.Name != s.region {
				continue
			}
			for _, g := range x.Gateways {
				if u, err := url.Parse(g.URL); err == nil {
					if a, err := netip.ParseAddr(u.Hostname()); err == nil {
						home[a] = true
					}
				}
			}
			for _, m := range x.Models {
				if m.Name == s.models[0] {
					s.requestCapacity = float64(m.PrefillRate) / float64(s.promptTokens+outputTokenWeight*s.outputTokens)
				}
			}
		}
		return nil
	})
	if err == nil && (len(home) == 0 || s.requestCapacity == 0) {
		err = fmt.Errorf("no region %q with a gateway and workers for %s: see `spillway status`", s.region, s.models[0])
	}
	return home, err
}

func (s *loadStepRun) prepareStep(net netip.Prefix) (load.Config, []netip.Addr, error) {
	var clients []load.Client
	var addrs []netip.Addr
	b := net.Masked().Addr().As4()
	for i := range stepClientCount {
		b[2], b[3] = byte(i), 1
		a := netip.AddrFrom4(b)
		addrs = append(addrs, a)
		clients = append(clients, load.Client{Name: a.String(), Source: a})
	}
	arrivals := func(part float64, d time.Duration, seed uint64) (load.ArrivalSource, error) {
		return load.NewPoissonSource(load.PoissonConfig{
			Rate: part * s.requestCapacity, For: d, Seed: seed,
			Prompt: load.LengthDist{Median: s.promptTokens}, Output: load.LengthDist{Median: s.outputTokens},
		})
	}
	first, err := arrivals(stepLowLoad, stepWarmUp, s.seed)
	if err != nil {
		return load.Config{}, nil, err
	}
	second, err := arrivals(stepHighLoad, s.duration, s.seed+1)
	if err != nil {
		return load.Config{}, nil, err
	}
	key, err := s.readAPIKey()
	return load.Config{
		Source: &twoPhaseSource{first: first, second: second, switchAt: stepWarmUp}, Clients: clients, Models: s.models, Key: key, Path: s.path,
		Stream: true, Seed: s.seed, OnOutcome: s.recordOutcome, Timeout: time.Minute,
		Target: load.Target{Service: s.service, DNS: s.nameServers, Port: s.port},
	}, addrs, err
}

func (s *loadStepRun) recordOutcome(o load.RequestOutcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Due.Sub(s.startedAt) < stepWarmUp || o.Kind == "abandoned" {
		return
	}
	s.result.Sent++
	switch {
	case o.Kind != "ok":
		s.result.Shed++
	case o.First.Sub(o.Due) > experiment.StepTargetTTFT:
		s.result.Late++
	}
}

// computeResult computes the load of the region for each second: the demand times the share of clients that DNS sent to it.
func (s *loadStepRun) computeResult(shares []float64) {
	x := experiment.UtilSeries{StepAt: int(stepWarmUp / time.Second)}
	for i, share := range shares {
		demand := stepLowLoad
		if i >= x.StepAt {
			demand = stepHighLoad
		}
		x.Util = append(x.Util, demand*share)
	}
	s.result.OnNetwork, s.result.First = true, x.MeasureStep()
	s.result.MovedOnce, s.result.MovedAgain = s.dnsWatch.MovedShares()
	s.result.BadAnswers = s.dnsWatch.Failed
}
