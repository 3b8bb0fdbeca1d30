package compare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
)

const (
	fairnessWorkers = 4
	lightLoadShare  = 0.25 // light tenant's demand as a fraction of the zone's capacity: half of its share
	floodLoadShare  = 5.0  // the other tenant's: ten times its share
	// floodDelay is how long the zone runs before the flood begins. Earlier requests do not count, in either run.
	floodDelay = 20 * time.Second
)

// minLightRequests is the minimum number of counted requests of the light tenant: a p99 needs some hundreds.
const minLightRequests = 500

// compareFairness compares fairness on each kind of GPU: the effect of a flood depends on the share of a first token
// that is waiting for steps, and that on the prefill rate.
func compareFairness(all *compareOptions) error {
	for _, kind := range all.fairGPUs {
		o := *all
		o.gpu, o.seeds = kind, all.fairSeeds
		each, err := measureCapacity(&o)
		if err != nil {
			return err
		}
		o.arrivalSpan = floodDelay + time.Duration(minLightRequests/(each*fairnessWorkers*lightLoadShare)*float64(time.Second))
		if err := compareFairnessOn(&o, each); err != nil {
			return err
		}
	}
	return nil
}

// compareFairnessOn compares one tenant's times to first token, alone and next to a tenant that floods the zone. A
// listener without authentication has a single tenant, so the requests are sent as a gateway sends them.
func compareFairnessOn(o *compareOptions, each float64) error {
	fmt.Printf("\nTwo tenants, one zone of %d healthy %s: one sends %.0f %% of the capacity of the zone, the other %.0f %%, ten times its share.\n",
		fairnessWorkers, o.gpu, 100*lightLoadShare, 100*floodLoadShare)
	var alone, next []time.Duration
	var least, most, served float64
	for seed := range uint64(o.seeds) {
		printProgress("fairness on %s, run %d of %d...", o.gpu, seed+1, o.seeds)
		var both, floods [2]*policyResult
		for i := range both {
			err := o.runIsolated(func(ctx context.Context) (err error) {
				both[i], floods[i], err = runLightTenant(ctx, o, seed+1, each*fairnessWorkers, i == 1)
				return err
			})
			if err != nil {
				return err
			}
		}
		printProgress("")
		if err := errors.Join(o.appendOutcomes("alone "+o.gpu, int(seed)+1, true, both[0]), o.appendOutcomes("flooded "+o.gpu, int(seed)+1, true, both[1])); err != nil {
			return err
		}
		if max(both[0].lag, both[1].lag) > maxSendLag {
			fmt.Println("INVALID: the machine was too busy to send on time. Repeat the run without other load.")
		}
		a, b := sortedTTFTs(both[0]), sortedTTFTs(both[1])
		rate := float64(len(sortedTTFTs(floods[1]))) / (o.arrivalSpan - floodDelay).Seconds()
		fmt.Printf("seed %d: %s; %d of %d answered; %.1f/s of the flood\n", seed+1, formatSlowdown(a, b), len(b), len(both[1].outcomes), rate)
		alone, next = append(alone, a...), append(next, b...)
		x := slowdownOf(a, b)
		if seed == 0 {
			least = x
		}
		least, most, served = min(least, x), max(most, x), served+rate/float64(o.seeds)
	}
	slices.Sort(alone)
	slices.Sort(next)
	fmt.Printf("all %d on %s: %s (by seed %.2f..%.2f); %.1f/s of the flood\n", o.seeds, o.gpu, formatSlowdown(alone, next), least, most, served)
	return nil
}

// slowdownOf is the ratio of the p99 next to the flood to that alone, both ascending.
func slowdownOf(alone, next []time.Duration) float64 {
	return quantileOf(next, 0.99).Seconds() / max(quantileOf(alone, 0.99).Seconds(), 1e-9)
}

// formatSlowdown compares times to first token, both ascending.
func formatSlowdown(alone, next []time.Duration) string {
	p50, p99 := quantileOf(alone, 0.5).Seconds(), quantileOf(alone, 0.99).Seconds()
	n50, n99 := quantileOf(next, 0.5).Seconds(), quantileOf(next, 0.99).Seconds()
	return fmt.Sprintf("the light tenant's TTFT p99 is %.3f s alone and %.3f s next to the flood, %.2f times; p50 %.3f s and %.3f s", p99, n99, slowdownOf(alone, next), p50, n50)
}

// sortedTTFTs are the times to first token of complete answers, ascending.
func sortedTTFTs(r *policyResult) []time.Duration {
	var out []time.Duration
	for i := range r.outcomes {
		if o := &r.outcomes[i]; o.Kind == "ok" {
			out = append(out, o.First.Sub(o.Due))
		}
	}
	slices.Sort(out)
	return out
}

// runLightTenant runs the light tenant's requests, with or without a flood, and returns the outcomes of both.
func runLightTenant(ctx context.Context, o *compareOptions, seed uint64, rate float64, flooded bool) (light, flood *policyResult, err error) {
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	gateway, instance, err := issueCerts(dir)
	if err != nil {
		return nil, nil, err
	}
	z, err := newZone(ctx, o, fairnessWorkers, seed, func(c *local.Config) { c.Plain, c.Certs = false, instance })
	if err != nil {
		return nil, nil, err
	}
	tenant := func(ctx context.Context, name string, seed uint64, rate float64) (*policyResult, error) {
		source, err := o.newArrivals(seed, rate, o.arrivalSpan)
		if err != nil {
			return nil, err
		}
		h := http.Header{}
		hop := forward.Hop{Tenant: name, Class: spec.Interactive, Model: o.model, RetriesLeft: 1}
		hop.SetHeaders(h)
		return o.sendLoad(ctx, load.Config{
			Source: source, Target: load.Target{URLs: []string{"https://" + z.agent.Addr().String()}}, Models: []string{o.model}, Seed: seed,
			Headers: h, TLS: gateway.ClientTLS(forward.ALPN, nil), MaxInFlight: 8192,
		})
	}
	begun := time.Now()
	noise, enough := context.WithCancel(ctx)
	var floodErr error
	var flooding sync.WaitGroup
	if flooded {
		flooding.Go(func() {
			select {
			case <-time.After(floodDelay):
			case <-noise.Done():
				return
			}
			flood, floodErr = tenant(noise, "flood", seed+1000, rate*floodLoadShare)
			if ctx.Err() == nil && errors.Is(floodErr, context.Canceled) {
				floodErr = nil // the flood's errors after the light tenant's end do not matter
			}
		})
	}
	light, err = tenant(ctx, "light", seed, rate*lightLoadShare)
	enough()
	flooding.Wait()
	err = errors.Join(err, floodErr)
	if light != nil {
		light.outcomes = slices.DeleteFunc(light.outcomes, func(o load.RequestOutcome) bool { return o.Due.Sub(begun) < floodDelay })
	}
	if flood != nil { // requests during the flood's end are not next to it
		flood.outcomes = slices.DeleteFunc(flood.outcomes, func(out load.RequestOutcome) bool { return out.First.Sub(begun) > o.arrivalSpan })
	}
	return light, flood, errors.Join(err, z.stopAll())
}

// issueCerts issues the certificates of the zone and of its sender.
func issueCerts(dir string) (gateway, instance *identity.Certs, err error) {
	ca, err := identity.NewDevCA(dir, "compare.test")
	if err != nil {
		return nil, nil, err
	}
	issue := func(id identity.ID, sub string) (*identity.Certs, error) {
		at := filepath.Join(dir, sub)
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		files, err := ca.IssueCert(id, at, time.Hour)
		if err != nil {
			return nil, err
		}
		return identity.LoadCerts(files, nil)
	}
	gateway, err = issue(identity.ID{TrustDomain: "compare.test", Role: identity.RoleGateway, Region: "here", Name: "g"}, "g")
	if err != nil {
		return nil, nil, err
	}
	instance, err = issue(identity.ID{TrustDomain: "compare.test", Role: identity.RoleLocal, Region: "here", Zone: "a", Name: "l1"}, "l")
	return gateway, instance, err
}
