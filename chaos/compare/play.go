package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/local"
)

// trial is one run of one policy.
type trial struct {
	policy         string
	seed           uint64
	rate           float64 // requests/s
	span           time.Duration
	workers        int
	faults, health bool
}

// result of a trial.
type result struct {
	outcomes []load.Outcome
	taken    []uint64 // requests by worker, those included that were then sent elsewhere
	lag      time.Duration
	span     time.Duration
}

// patience is what a client has.
const patience = 2 * time.Minute

// play runs one trial in a zone of its own.
func play(ctx context.Context, o *options, t trial) (*result, error) {
	z, err := newZone(ctx, o, t.workers, t.seed, func(c *local.Config) {
		c.Policy = t.policy
		if !t.health {
			healthless(c)
		}
	})
	if err != nil {
		return nil, err
	}
	source, err := o.arrivals(t.seed, t.rate, t.span)
	if err != nil {
		return nil, errors.Join(err, z.stop())
	}
	ill := time.AfterFunc(o.after, func() {
		if t.faults {
			if err := z.fallIll(); err != nil {
				progress("%v\n", err)
			}
		}
	})
	defer ill.Stop()
	r, err := o.send(ctx, load.Config{
		Source: source, Target: load.Target{URLs: []string{"http://" + z.agent.Addr().String()}}, Models: []string{o.model}, Seed: t.seed,
	})
	if err == nil {
		r.span = t.span
		for _, w := range z.workers {
			r.taken = append(r.taken, w.Taken())
		}
	}
	return r, errors.Join(err, z.stop())
}

// send plays a load and gathers its outcomes. Nothing is sent twice by the client: what is tried again, the zone tries.
func (o *options) send(ctx context.Context, c load.Config) (*result, error) {
	r := &result{}
	if o.net != nil {
		c.Dial = o.net.DialContext
	}
	var mu sync.Mutex
	c.Stream, c.Retries, c.Timeout = true, -1, patience
	c.OnOutcome = func(out load.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		r.outcomes = append(r.outcomes, out)
	}
	g, err := load.New(c)
	if err != nil {
		return nil, err
	}
	if err := g.Run(ctx); err != nil {
		return nil, fmt.Errorf("sending requests: %w", err)
	}
	r.lag = g.Report().Lag.P99
	return r, ctx.Err()
}
