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

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/step"
	"github.com/spillway-lb/spillway/internal/admin"
)

// The step that `load --step` makes, as `make step` does in virtual time.
const (
	stepLow, stepHigh = 0.7, 1.3
	stepWarm          = time.Minute // before it
	stepClients       = 200         // networks that ask, a resolver in each
	decodeWorth       = 8           // prefill tokens that one output token is reckoned as
)

// stepped plays one source and then another.
type stepped struct {
	first, second load.Source
	turn          time.Duration
	over          bool
}

func (s *stepped) Next() (load.Arrival, error) {
	if !s.over {
		a, err := s.first.Next()
		if !errors.Is(err, io.EOF) {
			return a, err
		}
		s.over = true
	}
	a, err := s.second.Next()
	a.At += s.turn
	return a, err
}

// stepRun is one step of demand against a planet that runs.
type stepRun struct {
	*loadRun
	region   string
	capacity float64 // requests/s that the region can do, by what its workers have shown
	watch    *step.Watch

	mu     sync.Mutex
	result step.Result
	begun  time.Time
}

func (r *loadRun) runStep(ctx context.Context, out, errOut io.Writer) error {
	net, err := netip.ParsePrefix(r.place)
	if err != nil || !net.Addr().Is4() || net.Bits() > 16 || r.service == "" || len(r.dns) == 0 || len(r.models) != 1 {
		return errors.New("a step needs --service, --dns, one --model and --place, the network that the clients ask from\n" +
			"hint: against the demo, --place 127.100.0.0/16 are clients beside its first region, virginia")
	}
	s := &stepRun{loadRun: r, region: r.step}
	home, err := s.look(ctx)
	if err != nil {
		return err
	}
	cfg, clients, err := s.prepare(net)
	if err != nil {
		return err
	}
	g, err := load.New(cfg)
	if err != nil {
		return err
	}
	s.watch = &step.Watch{Servers: r.dns, Name: r.service, Clients: clients, Home: home, From: stepWarm}
	fmt.Fprintf(errOut, "%s can do %.1f requests/s: %.1f/s for %s, then %.1f/s for %s\n", r.step, s.capacity, stepLow*s.capacity, stepWarm, stepHigh*s.capacity, r.length)
	s.begun = time.Now()
	seen := make(chan []float64)
	watched, stop := context.WithCancel(ctx)
	defer stop()
	go func() { seen <- s.watch.Run(watched) }()
	err = g.Run(ctx)
	stop()
	parts := <-seen
	s.read(parts)
	return errors.Join(err, step.Print(out, []step.Row{{Name: "live", Results: []*step.Result{&s.result}}}))
}

// look asks what the region can do and where its gateways are.
func (s *stepRun) look(ctx context.Context) (home map[netip.Addr]bool, err error) {
	home = map[netip.Addr]bool{}
	err = s.to.call(ctx, func(ctx context.Context, c *admin.Client) error {
		st, err := c.Status(ctx)
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
					s.capacity = float64(m.PrefillRate) / float64(s.prompt+decodeWorth*s.outTokens)
				}
			}
		}
		return nil
	})
	if err == nil && (len(home) == 0 || s.capacity == 0) {
		err = fmt.Errorf("no region %q with a gateway and workers for %s: see `spillway status`", s.region, s.models[0])
	}
	return home, err
}

func (s *stepRun) prepare(net netip.Prefix) (load.Config, []netip.Addr, error) {
	var clients []load.Client
	var addrs []netip.Addr
	b := net.Masked().Addr().As4()
	for i := range stepClients {
		b[2], b[3] = byte(i), 1
		a := netip.AddrFrom4(b)
		addrs = append(addrs, a)
		clients = append(clients, load.Client{Name: a.String(), Source: a})
	}
	arrivals := func(part float64, d time.Duration, seed uint64) (load.Source, error) {
		return load.NewPoisson(load.Poisson{
			Rate: part * s.capacity, For: d, Seed: seed,
			Prompt: load.Lengths{Median: s.prompt}, Output: load.Lengths{Median: s.outTokens},
		})
	}
	first, err := arrivals(stepLow, stepWarm, s.seed)
	if err != nil {
		return load.Config{}, nil, err
	}
	second, err := arrivals(stepHigh, s.length, s.seed+1)
	if err != nil {
		return load.Config{}, nil, err
	}
	key, err := s.key()
	return load.Config{
		Source: &stepped{first: first, second: second, turn: stepWarm}, Clients: clients, Models: s.models, Key: key, Path: s.path,
		Stream: true, Seed: s.seed, OnOutcome: s.book, Timeout: time.Minute,
		Target: load.Target{Service: s.service, DNS: s.dns, Port: s.port},
	}, addrs, err
}

func (s *stepRun) book(o load.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Due.Sub(s.begun) < stepWarm || o.Verdict == "abandoned" {
		return
	}
	s.result.Sent++
	switch {
	case o.Verdict != "ok":
		s.result.Shed++
	case o.First.Sub(o.Due) > step.Late:
		s.result.Late++
	}
}

// read makes the region's loads out of the parts of its clients that were sent home, second by second.
func (s *stepRun) read(parts []float64) {
	x := step.Series{At: int(stepWarm / time.Second)}
	for i, part := range parts {
		asked := stepLow
		if i >= x.At {
			asked = stepHigh
		}
		x.Util = append(x.Util, asked*part)
	}
	s.result.Live, s.result.Near = true, x.Measure()
	s.result.Once, s.result.Again = s.watch.Moved()
	s.result.Wrong = s.watch.Failed
}
