package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
)

const (
	fairWorkers = 4
	lightPart   = 0.25 // of the zone's capacity that the light tenant asks for: half of its share
	floodPart   = 5.0  // that the other asks for: ten times its share
	// quiet is how long the zone has been at work when the flood begins. What came due before does not count, in either run.
	quiet = 20 * time.Second
)

// fairCounted is how many requests of the light tenant count: a p99 wants some hundreds.
const fairCounted = 500

// fairnesses shows fairness on each kind of GPU: what a flood does to others depends on how much of a first token is
// waiting for steps, and that on how fast prompts are.
func fairnesses(ctx context.Context, all *options) error {
	for _, kind := range all.fairGPUs {
		o := *all
		o.gpu, o.seeds = kind, all.fairSeeds
		each, err := capacity(&o)
		if err != nil {
			return err
		}
		o.span = quiet + time.Duration(fairCounted/(each*fairWorkers*lightPart)*float64(time.Second))
		if err := fairness(ctx, &o, each); err != nil {
			return err
		}
	}
	return nil
}

// fairness shows one tenant's times to first token, alone and next to another that floods the zone. Behind a plain door
// everybody is one tenant, so the requests come as a gateway sends them.
func fairness(ctx context.Context, o *options, each float64) error {
	fmt.Printf("\nTwo tenants, one zone of %d healthy %s: one asks for %.0f %% of what the zone can do, the other for %.0f %%, ten times its share.\n",
		fairWorkers, o.gpu, 100*lightPart, 100*floodPart)
	var alone, next []time.Duration
	var least, most, served float64
	for seed := range uint64(o.seeds) {
		progress("fairness on %s, run %d of %d...", o.gpu, seed+1, o.seeds)
		var both, floods [2]*result
		err := together(o.oneByOne, 2, func(i int) (err error) {
			return o.run(ctx, func(ctx context.Context) (err error) {
				both[i], floods[i], err = beside(ctx, o, seed+1, each*fairWorkers, i == 1)
				return err
			})
		})
		if err != nil {
			return err
		}
		progress("")
		if err := errors.Join(o.write("alone "+o.gpu, int(seed)+1, true, both[0]), o.write("beside "+o.gpu, int(seed)+1, true, both[1])); err != nil {
			return err
		}
		if max(both[0].lag, both[1].lag) > maxLag {
			fmt.Println("THIS IS NO EVIDENCE: the machine was too busy to send on time. Run it again when nothing else runs.")
		}
		a, b := first(both[0]), first(both[1])
		rate := float64(len(first(floods[1]))) / (o.span - quiet).Seconds()
		fmt.Printf("seed %d: %s; %d of %d answered; %.1f/s of the flood\n", seed+1, ratio(a, b), len(b), len(both[1].outcomes), rate)
		alone, next = append(alone, a...), append(next, b...)
		x := times(a, b)
		if seed == 0 {
			least = x
		}
		least, most, served = min(least, x), max(most, x), served+rate/float64(o.seeds)
	}
	slices.Sort(alone)
	slices.Sort(next)
	fmt.Printf("all %d on %s: %s (by seed %.2f..%.2f); %.1f/s of the flood\n", o.seeds, o.gpu, ratio(alone, next), least, most, served)
	return nil
}

// times is how many times as long as alone the p99 takes next to the flood, both ascending.
func times(alone, next []time.Duration) float64 {
	return quantile(next, 0.99).Seconds() / max(quantile(alone, 0.99).Seconds(), 1e-9)
}

// ratio compares times to first token, both ascending.
func ratio(alone, next []time.Duration) string {
	p50, p99 := quantile(alone, 0.5).Seconds(), quantile(alone, 0.99).Seconds()
	n50, n99 := quantile(next, 0.5).Seconds(), quantile(next, 0.99).Seconds()
	return fmt.Sprintf("the light tenant's TTFT p99 is %.3f s alone and %.3f s next to the flood, %.2f times; p50 %.3f s and %.3f s", p99, n99, times(alone, next), p50, n50)
}

// first are the times to first token of whole answers, ascending.
func first(r *result) []time.Duration {
	var out []time.Duration
	for i := range r.outcomes {
		if o := &r.outcomes[i]; o.Verdict == "ok" {
			out = append(out, o.First.Sub(o.Due))
		}
	}
	slices.Sort(out)
	return out
}

// beside runs the light tenant's requests, next to a flood or not, and returns what came of them and of the flood.
func beside(ctx context.Context, o *options, seed uint64, rate float64, flooded bool) (light, flood *result, err error) {
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	gateway, instance, err := certificates(dir)
	if err != nil {
		return nil, nil, err
	}
	z, err := newZone(ctx, o, fairWorkers, seed, func(c *local.Config) { c.Plain, c.Certs = false, instance })
	if err != nil {
		return nil, nil, err
	}
	tenant := func(ctx context.Context, name string, seed uint64, rate float64) (*result, error) {
		source, err := o.arrivals(seed, rate, o.span)
		if err != nil {
			return nil, err
		}
		h := http.Header{}
		hop := relay.Hop{Tenant: name, Class: spec.Interactive, Model: o.model, RetriesLeft: 1}
		hop.Set(h)
		return o.send(ctx, load.Config{
			Source: source, Target: load.Target{URLs: []string{"https://" + z.agent.Addr().String()}}, Models: []string{o.model}, Seed: seed,
			Headers: h, TLS: gateway.Client(relay.ALPN, nil), MaxInFlight: 8192,
		})
	}
	begun := time.Now()
	noise, enough := context.WithCancel(ctx)
	err = together(false, 2, func(i int) (err error) {
		if i == 0 {
			defer enough()
			light, err = tenant(ctx, "light", seed, rate*lightPart)
		} else if flooded {
			select {
			case <-time.After(quiet):
			case <-noise.Done():
				return nil
			}
			flood, err = tenant(noise, "flood", seed+1000, rate*floodPart)
			if ctx.Err() == nil && errors.Is(err, context.Canceled) {
				err = nil // nobody listens to the flood once the light tenant is done
			}
		}
		return err
	})
	if light != nil {
		light.outcomes = slices.DeleteFunc(light.outcomes, func(o load.Outcome) bool { return o.Due.Sub(begun) < quiet })
	}
	if flood != nil { // what begins while it is let go is not what it had next to the other
		flood.outcomes = slices.DeleteFunc(flood.outcomes, func(out load.Outcome) bool { return out.First.Sub(begun) > o.span })
	}
	return light, flood, errors.Join(err, z.stop())
}

// certificates for the zone and for who sends to it.
func certificates(dir string) (gateway, instance *identity.Certs, err error) {
	ca, err := identity.NewDevCA(dir, "compare.test")
	if err != nil {
		return nil, nil, err
	}
	issue := func(id identity.ID, sub string) (*identity.Certs, error) {
		at := filepath.Join(dir, sub)
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		files, err := ca.Issue(id, at, time.Hour)
		if err != nil {
			return nil, err
		}
		return identity.Load(files, nil)
	}
	gateway, err = issue(identity.ID{TrustDomain: "compare.test", Role: identity.RoleGateway, Region: "here", Name: "g"}, "g")
	if err != nil {
		return nil, nil, err
	}
	instance, err = issue(identity.ID{TrustDomain: "compare.test", Role: identity.RoleLocal, Region: "here", Zone: "a", Name: "l1"}, "l")
	return gateway, instance, err
}
