package fleet

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestGlobalTenantLimitHolds: a tenant sends four times its limit to three regions, unevenly. Over a minute it is
// served within 5 % of the limit: with the control plane, while its demand moves to another region, and from the
// first minute after the control plane is cut off. With SPILLWAY_LEASES=1 (`make leases`) also after it is back.
func TestGlobalTenantLimitHolds(t *testing.T) {
	const perMinute = 300
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{
			Dir: dir, Layout: Layout{Globals: 3, Regions: 3, Workers: 1}, TTL: 20 * time.Second,
			Tenants: fmt.Sprintf("\n  - {name: acme, keys: [%q], limits: {scope: global, requests_per_minute: %d}}", spec.HashKey(memoryKey), perMinute),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &tenantLoad{fleet: p}
		stop := s.startLoad(t.Context())
		measure := func(what string, ask [3]float64, settle, within time.Duration) {
			s.setRates(ask)
			time.Sleep(settle)
			before, begun := s.currentCounts(), time.Now()
			time.Sleep(within)
			after := s.currentCounts()
			var each [3]int
			served, asked := 0, 0
			for r := range each {
				each[r] = after[r].served - before[r].served
				served += each[r]
				asked += after[r].asked - before[r].asked
			}
			rate := float64(served) / time.Since(begun).Minutes()
			t.Logf("%s: asked %.1f times the limit, served %.1f a minute of %d (%+.1f %%), by region %v", what,
				float64(asked)/time.Since(begun).Minutes()/perMinute, rate, perMinute, (rate/perMinute-1)*100, each)
			if math.Abs(rate/perMinute-1) > 0.05 {
				t.Errorf("%s: served %.1f a minute, more than 5 %% from %d", what, rate, perMinute)
			}
		}
		measure("control plane up", [3]float64{15, 4, 2}, 30*time.Second, time.Minute)
		if c := s.currentCounts(); c[0].served < 2*c[2].served {
			t.Errorf("the region that asks for most is not given most: nothing was leased (%v)", c)
		}
		if !raceDetector { // it takes minutes for each
			measure("what is asked for has moved", [3]float64{2, 3, 16}, 10*time.Second, time.Minute)
		}
		for i := range 3 {
			p.Net.CutHost(GlobalHost(i))
		}
		measure("control plane cut off, first minute", [3]float64{2, 3, 16}, 0, time.Minute)
		measure("control plane cut off for a minute", [3]float64{2, 3, 16}, 0, time.Minute)
		if os.Getenv("SPILLWAY_LEASES") != "" {
			for i := range 3 {
				p.Net.RestoreHost(GlobalHost(i))
			}
			measure("control plane back", [3]float64{2, 3, 16}, time.Minute, time.Minute)
			p.Net.CutHost(GlobalHost(0))
			measure("a global node lost, which may be the leader", [3]float64{15, 4, 2}, 0, time.Minute)
		}
		stop()
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// tenantLoad is a tenant that sends to every region at given rates, independent of the answers.
type tenantLoad struct {
	fleet  *InMemory
	mu     sync.Mutex
	rates  [3]float64
	counts [3]loadCounts
}

type loadCounts struct{ asked, served int }

func (s *tenantLoad) setRates(rate [3]float64) {
	s.mu.Lock()
	s.rates = rate
	s.mu.Unlock()
}

func (s *tenantLoad) currentCounts() [3]loadCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *tenantLoad) startLoad(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for r := range s.counts {
		c := s.fleet.NewHTTPCaller()
		callers.Go(func() {
			defer c.Close()
			var flying sync.WaitGroup
			defer flying.Wait()
			for n := 0; ctx.Err() == nil; n++ {
				s.mu.Lock()
				rate := s.rates[r]
				s.mu.Unlock()
				if rate == 0 {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				flying.Go(func() {
					got := c.PostCompletion(ctx, ClientAddr(r, n%50), GatewayHost(r), "hello", 1)
					s.mu.Lock()
					s.counts[r].asked++
					if got.Status == http.StatusOK {
						s.counts[r].served++
					}
					s.mu.Unlock()
				})
				time.Sleep(time.Duration(float64(time.Second) / rate))
			}
		})
	}
	return func() {
		cancel()
		callers.Wait()
	}
}
