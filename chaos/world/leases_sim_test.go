package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/lease"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// leaseSim is leaders and gateways that hold leases, as pure values on one clock, with a network that delays, cuts, and
// overtakes.
type leaseSim struct {
	now      time.Time
	rng      *rand.Rand
	spec     *spec.Spec
	who      *spec.Tenant
	leader   *lease.Leader // nil: none
	old      *lease.Leader // one that has not noticed yet, until oldUntil
	oldUntil time.Time
	term     uint64
	gateways []*leaseGateway
	mail     []leaseMail
	book     map[spec.Holder]heardReport // what every global node has heard
}

type leaseGateway struct {
	id       spec.Holder
	boot     uint64
	began    time.Time
	leases   *tenant.Leases
	use      capacity.Use
	up, down bool // links that work
}

type heardReport struct {
	report lease.Report
	at     time.Time
}

type leaseMail struct {
	at    time.Time
	to    *leaseGateway
	grant *lease.Grant
	sent  time.Time
	said  *lease.Report
}

func newLeaseSim(seed uint64, regions, gateways int, scope string, whole spec.Allowance) *leaseSim {
	s := &leaseSim{now: time.Unix(1_000_000, 0), rng: rand.New(rand.NewPCG(seed, 1)), book: map[spec.Holder]heardReport{}, spec: &spec.Spec{}}
	for r := range regions {
		region := spec.Region{Name: fmt.Sprint("r", r)}
		for g := range gateways {
			region.Gateways = append(region.Gateways, spec.Gateway{Name: fmt.Sprint("g", g)})
			id := spec.Holder{Region: region.Name, Gateway: fmt.Sprint("g", g)}
			s.gateways = append(s.gateways, &leaseGateway{id: id, boot: 1, began: s.now, leases: tenant.NewLeases(false, s.now), up: true, down: true})
		}
		s.spec.Regions = append(s.spec.Regions, region)
	}
	s.spec.Tenants = []spec.Tenant{{
		Name:   "acme",
		Limits: spec.Limits{Scope: scope, RequestsPerMinute: int(whole[spec.Requests] / 1000), TokensPerMinute: int(whole[spec.Tokens] / 1000), Concurrency: int(whole[spec.Concurrency])},
		Budget: spec.Budget{TokensPerDay: whole[spec.DayTokens]},
	}}
	s.who = &s.spec.Tenants[0]
	return s
}

func (s *leaseSim) delay() time.Duration { return time.Duration(s.rng.IntN(900)) * time.Millisecond }

// allow is what a gateway may spend right now.
func (s *leaseSim) allow(g *leaseGateway) spec.Allowance {
	static := s.spec.CircleOf(s.who, g.id.Region).Static(s.who.Allowance(), g.id)
	return g.leases.Allow(s.who.Name, static, spec.Allowance{spec.DayTokens: g.use.DayTokens}, s.who.Budget.Day(s.now), s.now)
}

// tick has a twentieth of a second pass. A quarter of a second lies between two statements and between two steps.
func (s *leaseSim) tick(n int) {
	s.now = s.now.Add(50 * time.Millisecond)
	left := s.mail[:0]
	for _, m := range s.mail {
		switch {
		case s.now.Before(m.at):
			left = append(left, m)
		case m.said != nil && m.to.up:
			if was := s.book[m.said.Holder]; m.sent.After(was.at.Add(-was.report.Age)) || was.at.IsZero() {
				s.book[m.said.Holder] = heardReport{*m.said, s.now}
			}
		case m.grant != nil && m.to.down && m.grant.Boot == m.to.boot:
			parts := map[string]tenant.Part{}
			for _, l := range m.grant.Leases {
				parts[l.Tenant] = tenant.Part{Day: l.Day, Part: l.Part}
			}
			base := m.to.began.Add(time.Duration(m.grant.Mark) * time.Millisecond)
			m.to.leases.Take(tenant.Grant{Term: m.grant.Term, Number: m.grant.Number, Hold: m.grant.Hold, Parts: parts}, base, s.now)
		}
	}
	s.mail = left
	if n%5 != 0 {
		return
	}
	for _, g := range s.gateways {
		term, number, age := g.leases.Status(s.now)
		g.use.Tenant, g.use.Day, g.use.CapTokens = s.who.Name, s.who.Budget.Day(s.now), 0
		if p, ok := g.leases.Part(s.who.Name); ok && p.Day == g.use.Day {
			g.use.CapTokens = p.Cap(spec.DayTokens, s.who.Allowance())
		}
		r := lease.Report{Holder: g.id, Uses: []capacity.Use{g.use}, Holding: capacity.Holding{
			Term: term, Number: number, Boot: g.boot, Mark: uint64(s.now.Sub(g.began).Milliseconds()), AgeMillis: min(age.Milliseconds(), capacity.MaxAmount),
		}}
		s.mail = append(s.mail, leaseMail{at: s.now.Add(s.delay()), to: g, said: &r, sent: s.now})
	}
	for _, l := range []*lease.Leader{s.leader, s.old} {
		if l == nil || l == s.old && s.now.After(s.oldUntil) {
			continue
		}
		var reports []lease.Report
		for _, g := range s.gateways {
			if h, ok := s.book[g.id]; ok {
				h.report.Age = s.now.Sub(h.at)
				reports = append(reports, h.report)
			}
		}
		grants := l.Step(s.now, s.spec, reports)
		for _, g := range s.gateways {
			if grant := grants[g.id]; grant != nil {
				s.mail = append(s.mail, leaseMail{at: s.now.Add(s.delay()), to: g, grant: grant})
			}
		}
	}
}

func (s *leaseSim) elect() {
	s.term++
	s.old, s.oldUntil = s.leader, s.now.Add(time.Second)
	s.leader = lease.New(s.term, s.now)
}

// sum is what all may spend together, of the circle that the first gateway is in.
func (s *leaseSim) sum() (sum spec.Allowance) {
	for _, g := range s.gateways {
		if s.who.Limits.Scope != spec.ScopeGlobal && g.id.Region != s.gateways[0].id.Region {
			continue
		}
		for r, n := range s.allow(g) {
			sum[r] += n
		}
	}
	return sum
}

// TestLeasesNeverExceedTheLimit: through bursts, cuts of either way, restarts and changes of leaders, what all gateways may
// spend at any moment adds up to the limit at the most.
func TestLeasesNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := spec.Allowance{spec.Requests: 600_000, spec.Tokens: 9_000_000, spec.Concurrency: int64(rapid.IntRange(1, 40).Draw(t, "slots")), spec.DayTokens: 100_000}
		s := newLeaseSim(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 3).Draw(t, "regions"), rapid.IntRange(1, 3).Draw(t, "gateways"),
			rapid.SampledFrom([]string{spec.ScopeGlobal, spec.ScopeRegion}).Draw(t, "scope"), whole)
		s.elect()
		for n := range rapid.IntRange(100, 1600).Draw(t, "ticks") {
			if n%40 == 0 {
				g := s.gateways[s.rng.IntN(len(s.gateways))]
				switch s.rng.IntN(9) {
				case 0:
					g.up = !g.up
				case 1:
					g.down = !g.down
				case 2:
					g.up, g.down = true, true
				case 3: // a restart forgets rates, and keeps caps
					part, ok := g.leases.Part(s.who.Name)
					g.boot, g.began, g.leases = g.boot+1, s.now, tenant.NewLeases(false, s.now)
					if ok {
						g.leases.Restore(s.who.Name, part)
					}
				case 4:
					if s.rng.IntN(3) == 0 {
						s.elect()
					}
				default:
					g.use.RequestsMilli, g.use.TokensMilli, g.use.Wanted = s.rng.Int64N(3_000_000), s.rng.Int64N(30_000_000), s.rng.Int64N(30)
				}
			}
			for _, g := range s.gateways { // everybody spends of the budget what there is
				if may := s.allow(g)[spec.DayTokens] - g.use.DayTokens; may > 0 && g.use.TokensMilli > 0 {
					g.use.DayTokens += min(may, s.rng.Int64N(200))
				}
			}
			s.tick(n)
			if sum := s.sum(); sum[spec.Requests] > whole[spec.Requests] || sum[spec.Tokens] > whole[spec.Tokens] || sum[spec.Concurrency] > whole[spec.Concurrency] {
				t.Fatalf("after %v all together may spend %v of %v", s.now.Sub(time.Unix(1_000_000, 0)), sum, whole)
			}
			var used int64
			for _, g := range s.gateways {
				if s.who.Limits.Scope == spec.ScopeGlobal || g.id.Region == "r0" {
					used += g.use.DayTokens
				}
			}
			bound := whole[spec.DayTokens]
			if s.term > 1 { // the leader changed, maybe while a gateway was cut off: see the documentation of package lease
				bound += bound / 20
			}
			if used > bound {
				t.Fatalf("%d tokens were used of a budget of %d", used, whole[spec.DayTokens])
			}
		}
	})
}

// TestLeasesFollowABurst: a region that asked for nothing has most of the limit within two seconds of asking, with what the
// network takes, and an idle one can still begin.
func TestLeasesFollowABurst(t *testing.T) {
	s := newLeaseSim(1, 3, 1, spec.ScopeGlobal, spec.Allowance{spec.Requests: 600_000, spec.Concurrency: 30})
	s.elect()
	n := 0
	pass := func(d time.Duration) {
		for end := s.now.Add(d); s.now.Before(end); n++ {
			s.tick(n)
		}
	}
	pass(20 * time.Second)
	if got := s.allow(s.gateways[0]); got[spec.Requests] != 200_000 {
		t.Fatalf("nobody asks, and the first may spend %v", got)
	}
	for turn := range 3 {
		for i, g := range s.gateways {
			g.use.RequestsMilli, g.use.Wanted = 0, 0
			if i == turn {
				g.use.RequestsMilli, g.use.Wanted = 3_000_000, 30
			}
		}
		began := s.now
		for s.allow(s.gateways[turn])[spec.Requests] < 540_000 {
			if pass(50 * time.Millisecond); s.now.Sub(began) > 10*time.Second {
				t.Fatalf("gateway %d has %v ten seconds after it began to ask", turn, s.allow(s.gateways[turn]))
			}
		}
		t.Logf("gateway %d has nine tenths after %v, where a message takes up to 900 ms", turn, s.now.Sub(began))
		pass(10 * time.Second)
		for i, g := range s.gateways {
			got := s.allow(g)
			if i != turn && (got[spec.Requests] < 5000 || got[spec.Concurrency] < 1) {
				t.Errorf("gateway %d, which asks for nothing, may spend %v", i, got)
			}
		}
		if sum := s.sum(); math.Abs(float64(sum[spec.Requests])/600_000-1) > 0.03 || sum[spec.Concurrency] < 29 {
			t.Errorf("all together may spend %v of 600000 and 30", sum)
		}
	}
}

// TestLeasesFallToStaticShares: when the leader is gone, each gateway has its static share, those with more first.
func TestLeasesFallToStaticShares(t *testing.T) {
	s := newLeaseSim(1, 3, 1, spec.ScopeGlobal, spec.Allowance{spec.Requests: 600_000})
	s.elect()
	s.gateways[0].use.RequestsMilli = 3_000_000
	for n := range 400 {
		s.tick(n)
	}
	if got := s.allow(s.gateways[0])[spec.Requests]; got < 540_000 {
		t.Fatalf("the busy gateway has %d", got)
	}
	s.leader = nil
	fell, rose := time.Duration(0), time.Duration(0)
	for n, from := 0, s.now; n < 400; n++ {
		s.tick(n)
		if fell == 0 && s.allow(s.gateways[0])[spec.Requests] == 200_000 {
			fell = s.now.Sub(from)
		}
		if rose == 0 && s.allow(s.gateways[1])[spec.Requests] == 200_000 {
			rose = s.now.Sub(from)
		}
	}
	if fell == 0 || fell > spec.LeaseFor+time.Second || rose < fell || rose > spec.LeaseFor+spec.LeaseGap+time.Second {
		t.Errorf("who had more fell after %v, and who had less rose after %v", fell, rose)
	}
}
