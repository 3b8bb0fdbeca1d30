package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/local"
)

// policyRun is one run of one policy.
type policyRun struct {
	policy         string
	seed           uint64
	rate           float64 // requests/s
	span           time.Duration
	workers        int
	faults, health bool
}

// policyResult is the result of a run.
type policyResult struct {
	outcomes         []load.RequestOutcome
	requestsByWorker []uint64 // requests by worker, including those that were then sent elsewhere
	lag              time.Duration
	span             time.Duration
}

// clientTimeout is the timeout of a client.
const clientTimeout = 2 * time.Minute

// playRun makes one run in a zone of its own.
func playRun(ctx context.Context, o *compareOptions, t policyRun) (*policyResult, error) {
	z, err := newZone(ctx, o, t.workers, t.seed, func(c *local.Config) {
		c.Policy = t.policy
		if !t.health {
			disableHealth(c)
		}
	})
	if err != nil {
		return nil, err
	}
	source, err := o.newArrivals(t.seed, t.rate, t.span)
	if err != nil {
		return nil, errors.Join(err, z.stopAll())
	}
	faultTimer := time.AfterFunc(o.faultDelay, func() {
		if t.faults {
			if err := z.injectFaults(); err != nil {
				printProgress("%v\n", err)
			}
		}
	})
	defer faultTimer.Stop()
	r, err := o.sendLoad(ctx, load.Config{
		Source: source, Target: load.Target{URLs: []string{"http://" + z.agent.Addr().String()}}, Models: []string{o.model}, Seed: t.seed,
	})
	if err == nil {
		r.span = t.span
		for _, w := range z.workers {
			r.requestsByWorker = append(r.requestsByWorker, w.TakenRequests())
		}
	}
	return r, errors.Join(err, z.stopAll())
}

// sendLoad sends a load and collects its outcomes. The client does not retry: only the zone does.
func (o *compareOptions) sendLoad(ctx context.Context, c load.Config) (*policyResult, error) {
	r := &policyResult{}
	c.Dial = o.net.DialContext
	var mu sync.Mutex
	c.Stream, c.Retries, c.Timeout = true, -1, clientTimeout
	c.OnOutcome = func(out load.RequestOutcome) {
		mu.Lock()
		defer mu.Unlock()
		r.outcomes = append(r.outcomes, out)
	}
	g, err := load.NewGenerator(c)
	if err != nil {
		return nil, err
	}
	if err := g.Run(ctx); err != nil {
		return nil, fmt.Errorf("sending requests: %w", err)
	}
	r.lag = g.CurrentReport().Lag.P99
	return r, ctx.Err()
}

// measureCapacity is how many requests per second one healthy worker serves under saturation, in virtual time.
func measureCapacity(o *compareOptions) (float64, error) {
	profile, err := gpu.LookupProfile(o.gpu, o.model, 0)
	if err != nil {
		return 0, fmt.Errorf("selecting the simulated worker: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	source, err := o.newArrivals(1, 1, 0)
	if err != nil {
		return 0, err
	}
	const requests, counted = 2000, 1500 // the last ones run alone on the worker
	now := time.Unix(0, 0)
	for i := range requests {
		a, err := source.NextArrival()
		if err != nil {
			return 0, err
		}
		if _, err := engine.Submit(now, gpu.EngineRequest{PromptTokens: a.PromptTokens(), OutputTokens: a.Output, Owner: i}); err != nil {
			return 0, fmt.Errorf("sending request %d to the virtual worker: %w", i, err)
		}
	}
	begun := now
	for done := 0; done < counted; {
		next, ok := engine.NextEvent()
		if !ok {
			break
		}
		now = next
		for _, s := range engine.AdvanceTo(now) {
			if s.IsDone() {
				done++
			}
		}
	}
	return counted / now.Sub(begun).Seconds(), nil
}

// newArrivals are the same for every policy and seed: chats of different lengths, a third of each prompt shared by an
// eighth of the users.
func (o *compareOptions) newArrivals(seed uint64, rate float64, span time.Duration) (load.ArrivalSource, error) {
	return load.NewPoissonSource(load.PoissonConfig{Rate: rate, For: span, Prompt: o.prompt, Output: o.output, Groups: 8, PrefixTokens: 160, Seed: seed})
}
