package compare

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

// testZone is one local instance and its simulated workers, in one network in memory.
type testZone struct {
	workers []*gpu.Server
	agent   *local.Agent
}

// newZone starts a zone without gateways, configured as in the README: only the workers' addresses. change may modify
// other settings.
func newZone(ctx context.Context, o *compareOptions, n int, seed uint64, change func(*local.Config)) (*testZone, error) {
	z := &testZone{}
	cfg := local.Config{
		Name: "l1", Region: "here", Zone: "a", Listen: "10.0.0.1:8080", Network: o.net.HostAt(netip.MustParseAddr("10.0.0.1")), Plain: true,
	}
	for i := range n {
		w, err := o.startWorker(i, seed)
		if err == nil {
			z.workers = append(z.workers, w)
			err = w.Start(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, z.stopAll())
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
		err = z.waitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, z.stopAll())
	}
	return z, nil
}

// startWorker starts one simulated worker.
func (o *compareOptions) startWorker(i int, seed uint64) (*gpu.Server, error) {
	ln, err := o.net.Listen(fmt.Sprintf("10.0.1.%d:8000", i+1))
	if err != nil {
		return nil, err
	}
	return gpu.New(gpu.Config{Listener: ln, GPU: o.gpu, Model: o.model, Seed: seed<<8 + uint64(i)})
}

// waitReady waits until every worker takes requests.
func (z *testZone) waitReady(ctx context.Context) error {
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

func (z *testZone) stopAll() error {
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

// Indexes of the faulty workers.
const (
	slowWorker, lyingWorker, leakingWorker = 1, 3, 5
	leakRequests                           = 40
	leakRestart                            = 10 * time.Second
)

// injectFaults injects the faults of three workers, which share a zone with healthy ones.
func (z *testZone) injectFaults() error {
	return errors.Join(
		z.workers[slowWorker].SetChaos(gpu.Chaos{Mode: gpu.ModeSlow, Factor: 4}),
		z.workers[lyingWorker].SetChaos(gpu.Chaos{Mode: gpu.ModeStall}),
		z.workers[leakingWorker].SetChaos(gpu.Chaos{Mode: gpu.ModeLeak, Requests: leakRequests, Restart: leakRestart.String()}),
	)
}

// disableHealth keeps only one rule of health: a worker that reports itself unhealthy gets nothing until it reports
// otherwise.
func disableHealth(c *local.Config) {
	c.Health = health.Config{
		Failures: math.MaxInt32, Stall: 24 * time.Hour, MaxEjected: 1e-9, Panic: 1e-9,
		Backoff: time.Nanosecond, MaxBackoff: time.Nanosecond, Quarantine: time.Nanosecond, SlowStart: time.Nanosecond,
	}
}
