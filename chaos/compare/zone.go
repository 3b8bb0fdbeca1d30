package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/health"
)

// zone is one local instance and its stand-in workers, all on loopback.
type zone struct {
	workers []*gpu.Server
	agent   *local.Agent
}

// newZone starts a zone that stands alone, as README's three lines do: the workers' addresses and nothing else. change
// may edit what is not in those lines.
func newZone(ctx context.Context, o *options, n int, seed uint64, change func(*local.Config)) (*zone, error) {
	z := &zone{}
	cfg := local.Config{Name: "l1", Region: "here", Zone: "a", Listen: "127.0.0.1:0", Plain: true}
	if o.net != nil {
		cfg.Listen, cfg.Network = "10.0.0.1:8080", o.net.Host(netip.MustParseAddr("10.0.0.1"))
	}
	for i := range n {
		w, err := o.worker(i, seed)
		if err == nil {
			z.workers = append(z.workers, w)
			err = w.Start(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, z.stop())
		}
		cfg.Workers = append(cfg.Workers, discover.Worker{Name: fmt.Sprintf("w%d", i+1), URL: w.URL()})
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if z.agent, err = local.New(cfg); err == nil {
		err = z.agent.Start(ctx)
	}
	if err == nil {
		err = z.ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, z.stop())
	}
	return z, nil
}

// worker makes one stand-in.
func (o *options) worker(i int, seed uint64) (*gpu.Server, error) {
	c := gpu.Config{Listen: "127.0.0.1:0", GPU: o.gpu, Model: o.model, Seed: seed<<8 + uint64(i)}
	if o.net != nil {
		var err error
		if c.Listener, err = o.net.Listen(fmt.Sprintf("10.0.1.%d:8000", i+1)); err != nil {
			return nil, err
		}
	}
	return gpu.New(c)
}

// ready waits until every worker takes requests.
func (z *zone) ready(ctx context.Context) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		n := 0
		for _, w := range z.agent.Status().Workers {
			if w.State == admin.StateReady {
				n++
			}
		}
		if n == len(z.workers) {
			return nil
		}
	}
	return errors.Join(errors.New("the workers did not become ready"), ctx.Err())
}

func (z *zone) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	if z.agent != nil {
		errs = append(errs, z.agent.Stop(ctx))
	}
	gone, kill := context.WithCancel(ctx)
	kill()
	for _, w := range z.workers {
		errs = append(errs, w.Stop(gone))
	}
	return errors.Join(errs...)
}

// The workers that fall ill, and how.
const (
	slowed, lying, leaking = 1, 3, 5
	leakRequests           = 40
	leakRestart            = 10 * time.Second
)

// fallIll breaks the three workers. That they share a zone with healthy ones is what is looked at.
func (z *zone) fallIll() error {
	return errors.Join(
		z.workers[slowed].SetChaos(gpu.Chaos{Mode: gpu.ModeSlow, Factor: 4}),
		z.workers[lying].SetChaos(gpu.Chaos{Mode: gpu.ModeStall}),
		z.workers[leaking].SetChaos(gpu.Chaos{Mode: gpu.ModeLeak, Requests: leakRequests, Restart: leakRestart.String()}),
	)
}

// healthless leaves of health only that a worker which says itself that it is ill gets nothing until it says otherwise.
func healthless(c *local.Config) {
	c.Health = health.Config{
		Failures: math.MaxInt32, Stall: 24 * time.Hour, MaxEjected: 1e-9, Panic: 1e-9,
		Backoff: time.Nanosecond, MaxBackoff: time.Nanosecond, Quarantine: time.Nanosecond, SlowStart: time.Nanosecond,
	}
}
