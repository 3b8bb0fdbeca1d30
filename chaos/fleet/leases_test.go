package fleet

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/global/quota"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional/tenant"
	"pgregory.net/rapid"
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
		if !testkit.RaceDetector { // it takes minutes for each
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

// quotaSim simulates leaders and gateways with leases as pure values on one clock, with a network that delays, cuts
// and reorders.
type quotaSim struct {
	now          time.Time
	rng          *rand.Rand
	spec         *spec.Spec
	tenant       *spec.Tenant
	leader       *quota.Allocator // nil: none
	formerLeader *quota.Allocator // a former leader that has not noticed its loss until formerUntil
	formerUntil  time.Time
	term         uint64
	gateways     []*simLeaseGateway
	messages     []quotaMessage
	reports      map[spec.LeaseHolder]receivedReport // the latest report at every global node
}

type simLeaseGateway struct {
	id                       spec.LeaseHolder
	boot                     uint64
	startedAt                time.Time
	leases                   *tenant.Leases
	usage                    capacity.TenantUsage
	uplinkOpen, downlinkOpen bool // links that work
}

type receivedReport struct {
	report quota.HolderReport
	at     time.Time
}

type quotaMessage struct {
	at     time.Time
	to     *simLeaseGateway
	grant  *quota.LeaseGrant
	sent   time.Time
	report *quota.HolderReport
}

func newQuotaSim(seed uint64, regions, gateways int, scope string, whole spec.Quota) *quotaSim {
	s := &quotaSim{now: time.Unix(1_000_000, 0), rng: rand.New(rand.NewPCG(seed, 1)), reports: map[spec.LeaseHolder]receivedReport{}, spec: &spec.Spec{}}
	for r := range regions {
		region := spec.Region{Name: fmt.Sprint("r", r)}
		for g := range gateways {
			region.Gateways = append(region.Gateways, spec.Gateway{Name: fmt.Sprint("g", g)})
			id := spec.LeaseHolder{Region: region.Name, Gateway: fmt.Sprint("g", g)}
			s.gateways = append(s.gateways, &simLeaseGateway{id: id, boot: 1, startedAt: s.now, leases: tenant.NewLeases(false, s.now), uplinkOpen: true, downlinkOpen: true})
		}
		s.spec.Regions = append(s.spec.Regions, region)
	}
	s.spec.Tenants = []spec.Tenant{{
		Name:   "acme",
		Limits: spec.TenantLimits{Scope: scope, RequestsPerMinute: int(whole[spec.ResourceRequests] / 1000), TokensPerMinute: int(whole[spec.ResourceTokens] / 1000), Concurrency: int(whole[spec.ResourceConcurrency])},
		Budget: spec.Budget{TokensPerDay: whole[spec.ResourceDayTokens]},
	}}
	s.tenant = &s.spec.Tenants[0]
	return s
}

func (s *quotaSim) messageDelay() time.Duration {
	return time.Duration(s.rng.IntN(900)) * time.Millisecond
}

// effectiveQuota is what a gateway may spend now.
func (s *quotaSim) effectiveQuota(g *simLeaseGateway) spec.Quota {
	static := s.spec.SharedQuotaOf(s.tenant, g.id.Region).StaticShare(s.tenant.TotalQuota(), g.id)
	return g.leases.LimitsFor(s.tenant.Name, static, spec.Quota{spec.ResourceDayTokens: g.usage.DayTokens}, s.tenant.Budget.DayNumber(s.now), s.now)
}

// advanceTick advances the clock by 50 ms. Summaries and allocation steps are 250 ms apart.
func (s *quotaSim) advanceTick(n int) {
	s.now = s.now.Add(50 * time.Millisecond)
	left := s.messages[:0]
	for _, m := range s.messages {
		switch {
		case s.now.Before(m.at):
			left = append(left, m)
		case m.report != nil && m.to.uplinkOpen:
			if was := s.reports[m.report.Holder]; m.sent.After(was.at.Add(-was.report.Age)) || was.at.IsZero() {
				s.reports[m.report.Holder] = receivedReport{*m.report, s.now}
			}
		case m.grant != nil && m.to.downlinkOpen && m.grant.Boot == m.to.boot:
			parts := map[string]tenant.TenantLease{}
			for _, l := range m.grant.Leases {
				parts[l.Tenant] = tenant.TenantLease{Day: l.Day, Limits: l.Amount}
			}
			base := m.to.startedAt.Add(time.Duration(m.grant.Mark) * time.Millisecond)
			m.to.leases.ApplyGrant(tenant.LeaseGrant{Term: m.grant.Term, Number: m.grant.Number, Hold: m.grant.Hold, Leases: parts}, base, s.now)
		}
	}
	s.messages = left
	if n%5 != 0 {
		return
	}
	for _, g := range s.gateways {
		term, number, age := g.leases.NewestGrant(s.now)
		g.usage.Tenant, g.usage.Day, g.usage.LeasedTokens = s.tenant.Name, s.tenant.Budget.DayNumber(s.now), 0
		if p, ok := g.leases.LeaseOf(s.tenant.Name); ok && p.Day == g.usage.Day {
			g.usage.LeasedTokens = p.ReportedCap(spec.ResourceDayTokens, s.tenant.TotalQuota())
		}
		r := quota.HolderReport{Holder: g.id, Uses: []capacity.TenantUsage{g.usage}, Holding: capacity.HeldLeases{
			Term: term, Number: number, Boot: g.boot, Mark: uint64(s.now.Sub(g.startedAt).Milliseconds()), AgeMillis: min(age.Milliseconds(), capacity.MaxAmount),
		}}
		s.messages = append(s.messages, quotaMessage{at: s.now.Add(s.messageDelay()), to: g, report: &r, sent: s.now})
	}
	for _, l := range []*quota.Allocator{s.leader, s.formerLeader} {
		if l == nil || l == s.formerLeader && s.now.After(s.formerUntil) {
			continue
		}
		var reports []quota.HolderReport
		for _, g := range s.gateways {
			if h, ok := s.reports[g.id]; ok {
				h.report.Age = s.now.Sub(h.at)
				reports = append(reports, h.report)
			}
		}
		grants := l.UpdateGrants(s.now, s.spec, reports)
		for _, g := range s.gateways {
			if grant := grants[g.id]; grant != nil {
				s.messages = append(s.messages, quotaMessage{at: s.now.Add(s.messageDelay()), to: g, grant: grant})
			}
		}
	}
}

func (s *quotaSim) electLeader() {
	s.term++
	s.formerLeader, s.formerUntil = s.leader, s.now.Add(time.Second)
	s.leader = quota.New(s.term, s.now)
}

// totalQuota is what all gateways may spend together, in the partition of the first gateway.
func (s *quotaSim) totalQuota() (sum spec.Quota) {
	for _, g := range s.gateways {
		if s.tenant.Limits.Scope != spec.ScopeGlobal && g.id.Region != s.gateways[0].id.Region {
			continue
		}
		for r, n := range s.effectiveQuota(g) {
			sum[r] += n
		}
	}
	return sum
}

// TestLeasesNeverExceedTheLimit: through bursts, cuts in either direction, restarts and leader changes, the sum of
// what all gateways may spend never exceeds the limit.
func TestLeasesNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := spec.Quota{spec.ResourceRequests: 600_000, spec.ResourceTokens: 9_000_000, spec.ResourceConcurrency: int64(rapid.IntRange(1, 40).Draw(t, "slots")), spec.ResourceDayTokens: 100_000}
		s := newQuotaSim(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 3).Draw(t, "regions"), rapid.IntRange(1, 3).Draw(t, "gateways"),
			rapid.SampledFrom([]string{spec.ScopeGlobal, spec.ScopeRegion}).Draw(t, "scope"), whole)
		s.electLeader()
		for n := range rapid.IntRange(100, 1600).Draw(t, "ticks") {
			if n%40 == 0 {
				g := s.gateways[s.rng.IntN(len(s.gateways))]
				switch s.rng.IntN(9) {
				case 0:
					g.uplinkOpen = !g.uplinkOpen
				case 1:
					g.downlinkOpen = !g.downlinkOpen
				case 2:
					g.uplinkOpen, g.downlinkOpen = true, true
				case 3: // a restart loses rates, and keeps caps
					part, ok := g.leases.LeaseOf(s.tenant.Name)
					g.boot, g.startedAt, g.leases = g.boot+1, s.now, tenant.NewLeases(false, s.now)
					if ok {
						g.leases.RestoreCap(s.tenant.Name, part)
					}
				case 4:
					if s.rng.IntN(3) == 0 {
						s.electLeader()
					}
				default:
					g.usage.RequestsMilli, g.usage.TokensMilli, g.usage.WantedConcurrency = s.rng.Int64N(3_000_000), s.rng.Int64N(30_000_000), s.rng.Int64N(30)
				}
			}
			for _, g := range s.gateways { // every gateway spends all that is left of the budget
				if may := s.effectiveQuota(g)[spec.ResourceDayTokens] - g.usage.DayTokens; may > 0 && g.usage.TokensMilli > 0 {
					g.usage.DayTokens += min(may, s.rng.Int64N(200))
				}
			}
			s.advanceTick(n)
			if sum := s.totalQuota(); sum[spec.ResourceRequests] > whole[spec.ResourceRequests] || sum[spec.ResourceTokens] > whole[spec.ResourceTokens] || sum[spec.ResourceConcurrency] > whole[spec.ResourceConcurrency] {
				t.Fatalf("after %v all together may spend %v of %v", s.now.Sub(time.Unix(1_000_000, 0)), sum, whole)
			}
			var used int64
			for _, g := range s.gateways {
				if s.tenant.Limits.Scope == spec.ScopeGlobal || g.id.Region == "r0" {
					used += g.usage.DayTokens
				}
			}
			bound := whole[spec.ResourceDayTokens]
			if s.term > 1 { // the leader changed, possibly while a gateway was cut off: see the documentation of package quota
				bound += bound / 20
			}
			if used > bound {
				t.Fatalf("%d tokens were used of a budget of %d", used, whole[spec.ResourceDayTokens])
			}
		}
	})
}

// TestLeasesFollowABurst: a region without earlier demand gets most of the limit within two seconds plus network
// delay, and an idle one can still begin.
func TestLeasesFollowABurst(t *testing.T) {
	s := newQuotaSim(1, 3, 1, spec.ScopeGlobal, spec.Quota{spec.ResourceRequests: 600_000, spec.ResourceConcurrency: 30})
	s.electLeader()
	n := 0
	pass := func(d time.Duration) {
		for end := s.now.Add(d); s.now.Before(end); n++ {
			s.advanceTick(n)
		}
	}
	pass(20 * time.Second)
	if got := s.effectiveQuota(s.gateways[0]); got[spec.ResourceRequests] != 200_000 {
		t.Fatalf("no gateway asks, and the first may spend %v", got)
	}
	for turn := range 3 {
		for i, g := range s.gateways {
			g.usage.RequestsMilli, g.usage.WantedConcurrency = 0, 0
			if i == turn {
				g.usage.RequestsMilli, g.usage.WantedConcurrency = 3_000_000, 30
			}
		}
		began := s.now
		for s.effectiveQuota(s.gateways[turn])[spec.ResourceRequests] < 540_000 {
			if pass(50 * time.Millisecond); s.now.Sub(began) > 10*time.Second {
				t.Fatalf("gateway %d has %v ten seconds after it began to ask", turn, s.effectiveQuota(s.gateways[turn]))
			}
		}
		t.Logf("gateway %d has nine tenths after %v, where a message takes up to 900 ms", turn, s.now.Sub(began))
		pass(10 * time.Second)
		for i, g := range s.gateways {
			got := s.effectiveQuota(g)
			if i != turn && (got[spec.ResourceRequests] < 5000 || got[spec.ResourceConcurrency] < 1) {
				t.Errorf("gateway %d, which asks for nothing, may spend %v", i, got)
			}
		}
		if sum := s.totalQuota(); math.Abs(float64(sum[spec.ResourceRequests])/600_000-1) > 0.03 || sum[spec.ResourceConcurrency] < 29 {
			t.Errorf("all together may spend %v of 600000 and 30", sum)
		}
	}
}

// TestLeasesFallBackToStaticShares: without a leader each gateway falls back to its static share, those with more
// first.
func TestLeasesFallBackToStaticShares(t *testing.T) {
	s := newQuotaSim(1, 3, 1, spec.ScopeGlobal, spec.Quota{spec.ResourceRequests: 600_000})
	s.electLeader()
	s.gateways[0].usage.RequestsMilli = 3_000_000
	for n := range 400 {
		s.advanceTick(n)
	}
	if got := s.effectiveQuota(s.gateways[0])[spec.ResourceRequests]; got < 540_000 {
		t.Fatalf("the busy gateway has %d", got)
	}
	s.leader = nil
	fell, rose := time.Duration(0), time.Duration(0)
	for n, from := 0, s.now; n < 400; n++ {
		s.advanceTick(n)
		if fell == 0 && s.effectiveQuota(s.gateways[0])[spec.ResourceRequests] == 200_000 {
			fell = s.now.Sub(from)
		}
		if rose == 0 && s.effectiveQuota(s.gateways[1])[spec.ResourceRequests] == 200_000 {
			rose = s.now.Sub(from)
		}
	}
	if fell == 0 || fell > spec.LeaseDuration+time.Second || rose < fell || rose > spec.LeaseDuration+spec.LeaseTakeoverDelay+time.Second {
		t.Errorf("who had more fell after %v, and who had less rose after %v", fell, rose)
	}
}
