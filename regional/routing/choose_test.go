package routing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/routing"
	"pgregory.net/rapid"
)

// testModel is one worker's worth of a model: 10,000 tokens/s of prefill and room for all.
func testModel(name string, ahead int64) capacity.ModelCapacity {
	return capacity.ModelCapacity{
		Name: name, Ready: 1, Total: 1, Hardware: []capacity.HardwareRates{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}},
		KVTotal: 400_000, KVFree: 400_000, SlotsTotal: 256, SlotsFree: 256, WorkAhead: [spec.NumClasses]int64{ahead, ahead, ahead},
		Headroom: [spec.NumClasses]int64{5000, 5000, 5000}, MaxContext: 32_000,
	}
}

func testLocal(zoneName string, ms ...capacity.ModelCapacity) routing.LocalInstance {
	return routing.LocalInstance{Summary: &capacity.Summary{Path: capacity.Path{Region: "fra", Zone: zoneName, Instance: "l1"}, Endpoint: zoneName + ":1", Models: pointersTo(ms)}}
}

func testPeer(region string, rtt time.Duration, ms ...capacity.ModelCapacity) routing.PeerRegion {
	return routing.PeerRegion{
		Region: region, Gateways: []routing.PeerGateway{{Name: region + "-gw", Endpoint: region + ":1"}}, RTT: rtt,
		Summary: &capacity.Summary{Path: capacity.Path{Region: region}, Models: pointersTo(ms)},
	}
}

// pointersTo returns the models as a summary lists them.
func pointersTo(ms []capacity.ModelCapacity) (out []*capacity.ModelCapacity) {
	for i := range ms {
		out = append(out, &ms[i])
	}
	return out
}

func testQuery() *routing.RouteQuery {
	return &routing.RouteQuery{Model: "m", PromptTokens: 1000, MaxTokens: 100, Class: spec.Standard, Spill: true, Margin: 20 * time.Millisecond}
}

func newRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func withChange[T any](v T, change func(*T)) T { change(&v); return v }

// asUnreported returns the peer as seen while the global tier is silent: no new reports, healthy by the last one.
func asUnreported(p routing.PeerRegion) routing.PeerRegion {
	p.State, p.Unreported = capacity.Stale, true
	return p
}

func TestChooseRouteCases(t *testing.T) {
	busy, free := testModel("m", 20_000), testModel("m", 0)
	none := withChange(free, func(m *capacity.ModelCapacity) { m.Ready = 0 })
	warm := withChange(none, func(m *capacity.ModelCapacity) { m.Warm = 1 })
	cold := withChange(none, func(m *capacity.ModelCapacity) { m.Cold = 2 })
	for _, tc := range []struct {
		name   string
		view   routing.RoutingView
		query  func(*routing.RouteQuery)
		want   string // endpoint; empty: none
		reason string
	}{
		{"the sooner zone", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy), testLocal("b", free)}}, nil, "b:1", routing.ReasonSoonest},
		{"not the model's", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("other", 0))}}, nil, "", routing.ReasonNoneServes},
		{"nothing ready", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", none)}}, nil, "", routing.ReasonNoneServes},
		{"a load at home if nothing is ready", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", none), testLocal("b", cold)}}, nil, "b:1", routing.ReasonCold},
		{"waking before loading", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", cold), testLocal("b", warm)}}, nil, "b:1", routing.ReasonCold},
		{"ready before cold", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", cold), testLocal("b", busy)}}, nil, "b:1", routing.ReasonSoonest},
		{"a peer that is ready before a load at home", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", warm)}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", routing.ReasonNoLocal},
		{"the zone that loads sooner, as it says itself", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(cold, func(m *capacity.ModelCapacity) { m.ColdMillis = 9000 })), testLocal("b", withChange(cold, func(m *capacity.ModelCapacity) { m.ColdMillis = 4000 }))}}, nil, "b:1", routing.ReasonCold},
		{"a quick load before a slow waking", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(warm, func(m *capacity.ModelCapacity) { m.WarmMillis = 20_000 })), testLocal("b", withChange(cold, func(m *capacity.ModelCapacity) { m.ColdMillis = 5000 }))}}, nil, "b:1", routing.ReasonCold},
		{"waking at home before a long queue at a peer", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(warm, func(m *capacity.ModelCapacity) { m.WarmMillis = 500 }))}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, busy)}}, nil, "a:1", routing.ReasonCold},
		{"a peer's queue before a longer load at home", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(cold, func(m *capacity.ModelCapacity) { m.ColdMillis = 5000 }))}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, busy)}}, nil, "ams:1", routing.ReasonNoLocal},
		{"never into a peer's cold capacity", routing.RoutingView{Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, warm)}}, nil, "", routing.ReasonNoneServes},
		{"a load at home before a draining zone", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", cold), withChange(testLocal("b", free), func(l *routing.LocalInstance) { l.Drained = true })}}, nil, "a:1", routing.ReasonCold},
		{"no load for whom another region sent", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", cold)}}, func(q *routing.RouteQuery) { q.Hops = 1 }, "", routing.ReasonNoneServes},
		{"context too long", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", free)}}, func(q *routing.RouteQuery) { q.PromptTokens = 41_000 }, "", routing.ReasonNoneServes},
		{"excluded", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", free), testLocal("b", busy)}}, func(q *routing.RouteQuery) { q.FailedEndpoints[1] = "a:1" }, "b:1", routing.ReasonSoonest},
		{"drained zone is left", routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", free), func(l *routing.LocalInstance) { l.Drained = true }), testLocal("b", busy)}}, nil, "b:1", routing.ReasonSoonest},
		{"drained if nothing else", routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", free), func(l *routing.LocalInstance) { l.Drained = true })}}, nil, "a:1", routing.ReasonLastResort},
		{"lost if nothing else", routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", free), func(l *routing.LocalInstance) { l.State = capacity.Unreachable })}}, nil, "a:1", routing.ReasonLastResort},
		{"stale is usable", routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", free), func(l *routing.LocalInstance) { l.State = capacity.Stale })}}, nil, "a:1", routing.ReasonSoonest},
		{"spill when nothing is here", routing.RoutingView{Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", routing.ReasonNoLocal},
		{"spill before a lost local", routing.RoutingView{
			Locals: []routing.LocalInstance{withChange(testLocal("a", free), func(l *routing.LocalInstance) { l.State = capacity.Unreachable })},
			Peers:  []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)},
		}, nil, "ams:1", routing.ReasonNoLocal},
		{"the sooner peer", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", routing.ReasonPeerSooner},
		{"not for less than RTT and margin", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 1000))}, Peers: []routing.PeerRegion{testPeer("ams", 90*time.Millisecond, free)}}, nil, "a:1", routing.ReasonSoonest},
		{"not to stale headroom", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{withChange(testPeer("ams", 10*time.Millisecond, free), func(p *routing.PeerRegion) { p.State = capacity.Stale })}}, nil, "a:1", routing.ReasonSoonest},
		{"to a peer of which nobody can tell any more", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{asUnreported(testPeer("ams", 10*time.Millisecond, free))}}, nil, "ams:1", routing.ReasonPeerSooner},
		{"not to one that had no headroom then", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{asUnreported(testPeer("ams", 10*time.Millisecond, withChange(free, func(m *capacity.ModelCapacity) { m.Headroom = [3]int64{} })))}}, nil, "a:1", routing.ReasonSoonest},
		{"not without headroom", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, withChange(free, func(m *capacity.ModelCapacity) { m.Headroom = [3]int64{} }))}}, nil, "a:1", routing.ReasonSoonest},
		{"never twice", routing.RoutingView{Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, func(q *routing.RouteQuery) { q.Hops = 1 }, "", routing.ReasonNoneServes},
		{"not when policy forbids", routing.RoutingView{Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, func(q *routing.RouteQuery) { q.Spill = false }, "", routing.ReasonNoneServes},
		{"not out of residency", routing.RoutingView{Peers: []routing.PeerRegion{testPeer("iad", 10*time.Millisecond, free)}}, func(q *routing.RouteQuery) { q.Residency = []string{"eu"} }, "", routing.ReasonNoneServes},
		{
			"inside residency",
			routing.RoutingView{Peers: []routing.PeerRegion{testPeer("iad", time.Millisecond, free), withChange(testPeer("ams", 10*time.Millisecond, free), func(p *routing.PeerRegion) { p.Residency = []string{"eu"} })}},
			func(q *routing.RouteQuery) { q.Residency = []string{"eu"} }, "ams:1", routing.ReasonNoLocal,
		},
		{
			"another label satisfies no residency",
			routing.RoutingView{Peers: []routing.PeerRegion{
				withChange(testPeer("iad", time.Millisecond, free), func(p *routing.PeerRegion) { p.Residency = []string{"us", "ca"} }),
				withChange(testPeer("ams", 10*time.Millisecond, free), func(p *routing.PeerRegion) { p.Residency = []string{"nl", "eu"} }),
			}},
			func(q *routing.RouteQuery) { q.Residency = []string{"uk", "eu"} }, "ams:1", routing.ReasonNoLocal,
		},
		{
			"not out of the tenant's regions, to a third that is one",
			routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{testPeer("iad", time.Millisecond, free), testPeer("ams", 10*time.Millisecond, free)}},
			func(q *routing.RouteQuery) { q.Regions = []string{"fra", "ams"} }, "ams:1", routing.ReasonPeerSooner,
		},
		{
			"a region of the tenant's must also be of its jurisdiction",
			routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", busy)}, Peers: []routing.PeerRegion{withChange(testPeer("ams", time.Millisecond, free), func(p *routing.PeerRegion) { p.Residency = []string{"us"} })}},
			func(q *routing.RouteQuery) { q.Regions, q.Residency = []string{"fra", "ams"}, []string{"eu"} }, "a:1", routing.ReasonSoonest,
		},
		{"drained region goes to a peer", routing.RoutingView{Drained: true, Locals: []routing.LocalInstance{testLocal("a", free)}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", routing.ReasonRegionDrain},
		{"drained region without a peer serves", routing.RoutingView{Drained: true, Locals: []routing.LocalInstance{testLocal("a", free)}}, nil, "a:1", routing.ReasonSoonest},
		{"no room for KV", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(free, func(m *capacity.ModelCapacity) { m.KVFree = 10 })), testLocal("b", testModel("m", 2000))}}, nil, "b:1", routing.ReasonSoonest},
		{"no slot", routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withChange(free, func(m *capacity.ModelCapacity) { m.SlotsFree = 0 })), testLocal("b", testModel("m", 1000))}}, nil, "b:1", routing.ReasonSoonest},
		{
			"cached prefix",
			routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", free), testLocal("b", withChange(testModel("m", 200), func(m *capacity.ModelCapacity) { m.Prefixes = []capacity.PrefixEntry{{Hash: 7, Tokens: 900}} }))}},
			func(q *routing.RouteQuery) { q.Prefix = []uint64{6, 7} }, "b:1", routing.ReasonSoonest,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := testQuery()
			if tc.query != nil {
				tc.query(q)
			}
			var rec explain.Explanation
			got, ok := routing.ChooseRoute(q, &tc.view, time.Time{}, newRNG(), &rec)
			if got.Endpoint != tc.want || ok != (tc.want != "") || rec.Reason != tc.reason {
				t.Fatalf("chose %+v (%v) because of %q, want %q because of %q\n%+v", got, ok, rec.Reason, tc.want, tc.reason, rec)
			}
			if want := len(tc.view.Locals) + len(tc.view.Peers); len(rec.Candidates) != want {
				t.Errorf("%d candidates explained, want %d", len(rec.Candidates), want)
			}
			if ok && got.IsSpilled() != (len(got.Path.Zone) == 0) {
				t.Errorf("verdict %+v is half a peer", got)
			}
		})
	}
}

func TestLedgerSpreadsABurstBetweenSummaries(t *testing.T) {
	v := routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 0)), testLocal("b", testModel("m", 0)), testLocal("c", testModel("m", 0))}}
	q := testQuery()
	q.Ledger = routing.NewLedger()
	r, count := newRNG(), map[string]int{}
	for range 300 {
		got, ok := routing.ChooseRoute(q, &v, time.Time{}, r, nil)
		if !ok {
			t.Fatal("no verdict")
		}
		q.Ledger.IssueTicket(got.Path, q.Model, int64(q.PromptTokens), int64(q.PromptTokens+q.MaxTokens))
		count[got.Endpoint]++
	}
	for e, n := range count {
		if n < 90 || n > 110 {
			t.Errorf("%s got %d of 300, want a third", e, n)
		}
	}
	if len(count) != 3 {
		t.Errorf("used %v", count)
	}
}

// drawView draws views in which any zone and any peer may be busy, draining, unreachable or without a summary.
func drawView(t *rapid.T) *routing.RoutingView {
	gen := func(name string) capacity.ModelCapacity {
		m := testModel("m", rapid.Int64Range(0, 50_000).Draw(t, name+" ahead"))
		m.Ready = rapid.Int64Range(0, 3).Draw(t, name+" ready")
		m.KVFree = rapid.Int64Range(0, m.KVTotal).Draw(t, name+" kv")
		m.Headroom[spec.Standard] = rapid.Int64Range(0, 2).Draw(t, name+" headroom")
		if rapid.IntRange(0, 4).Draw(t, name+" other") == 0 {
			m.Name = "other"
		}
		return m
	}
	v := &routing.RoutingView{Drained: rapid.Bool().Draw(t, "drained")}
	for i := range rapid.IntRange(0, 5).Draw(t, "locals") {
		l := testLocal(fmt.Sprintf("z%d", i), gen("local"))
		l.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state"))
		l.Drained = rapid.Bool().Draw(t, "zone drained")
		v.Locals = append(v.Locals, l)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "peers") {
		p := testPeer(fmt.Sprintf("p%d", i), time.Duration(rapid.IntRange(0, 300).Draw(t, "rtt"))*time.Millisecond, gen("peer"))
		p.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state"))
		p.Residency = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"eu", "us"}), rapid.ID).Draw(t, "labels")
		v.Peers = append(v.Peers, p)
	}
	return v
}

func TestChooseRouteKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, q := drawView(t), testQuery()
		q.Hops = rapid.IntRange(0, 1).Draw(t, "hops")
		if rapid.Bool().Draw(t, "resident") {
			q.Residency = []string{"eu"}
		}
		if rapid.Bool().Draw(t, "fenced") {
			q.Regions = []string{"home", "p1", "p2"}
		}
		q.FailedEndpoints[0] = rapid.SampledFrom([]string{"", "z0:1", "p0:1"}).Draw(t, "exclude")
		seed := rapid.Uint64().Draw(t, "seed")
		got, ok := routing.ChooseRoute(q, v, time.Time{}, rand.New(rand.NewPCG(seed, 1)), nil)
		var rec explain.Explanation
		again, ok2 := routing.ChooseRoute(q, v, time.Time{}, rand.New(rand.NewPCG(seed, 1)), &rec)
		if got != again || ok != ok2 {
			t.Fatalf("the same inputs gave %+v and, explained, %+v", got, again)
		}
		usable := false
		for _, l := range v.Locals {
			m := l.Summary.FindModel("m")
			can := m != nil && m.Ready > 0 && l.Summary.Endpoint != q.FailedEndpoints[0]
			usable = usable || can
			if ok && got.Endpoint == l.Summary.Endpoint && !can {
				t.Fatalf("chose %+v, which cannot serve", got)
			}
		}
		for _, p := range v.Peers {
			m := p.Summary.FindModel("m")
			can := m != nil && m.Ready > 0 && p.Gateways[0].Endpoint != q.FailedEndpoints[0] && q.Hops == 0 && (len(q.Residency) == 0 || slices.Contains(p.Residency, "eu")) &&
				(len(q.Regions) == 0 || slices.Contains(q.Regions, p.Region))
			usable = usable || can
			if ok && got.Path.Region == p.Region && !can {
				t.Fatalf("spilled to %+v against the rules", got)
			}
		}
		if ok != usable {
			t.Fatalf("verdict %v, but usable is %v", ok, usable)
		}
	})
}

func newBigView(n int) *routing.RoutingView {
	v := &routing.RoutingView{}
	for i := range n {
		v.Locals = append(v.Locals, testLocal(fmt.Sprintf("z%03d", i), testModel("a", 0), testModel("m", int64(i%7)*100), testModel("n", 0)))
	}
	for i := range 8 {
		v.Peers = append(v.Peers, testPeer(fmt.Sprintf("p%d", i), 50*time.Millisecond, testModel("m", 0)))
	}
	return v
}

func TestChooseRouteAllocatesNothing(t *testing.T) {
	v, q, r := newBigView(32), testQuery(), newRNG()
	q.Ledger = routing.NewLedger()
	q.Ledger.IssueTicket(v.Locals[3].Summary.Path, "m", 10, 10)
	if n := testing.AllocsPerRun(1000, func() { routing.ChooseRoute(q, v, time.Time{}, r, nil) }); n != 0 {
		t.Fatalf("Choose allocates %v times, want 0", n)
	}
}

func BenchmarkChooseRoute(b *testing.B) {
	for _, n := range []int{4, 32} {
		b.Run(fmt.Sprintf("locals=%d/peers=8", n), func(b *testing.B) {
			v, q, r := newBigView(n), testQuery(), newRNG()
			q.Ledger = routing.NewLedger()
			for i := range v.Locals {
				q.Ledger.IssueTicket(v.Locals[i].Summary.Path, "m", 10, 10)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := routing.ChooseRoute(q, v, time.Time{}, r, nil); !ok {
					b.Fatal("no verdict")
				}
			}
		})
	}
}

// The cost of a request of a pool is that of the pool's workers, not of the zone's other workers.
func TestPoolRequestsUsePoolCapacity(t *testing.T) {
	pooled := func(ahead int64, pools ...capacity.ModelCapacity) capacity.ModelCapacity {
		m := testModel("m", ahead)
		m.Pools = pointersTo(pools)
		return m
	}
	none := withChange(testModel("gold", 0), func(m *capacity.ModelCapacity) { m.Ready = 0 })
	for _, tc := range []struct {
		name     string
		a, b     capacity.ModelCapacity
		pool     string
		overflow bool
		want     string
	}{
		{"a request without a pool", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 0)), "", false, "a:1"},
		{"the pool with less before it", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 0)), "gold", false, "b:1"},
		{"the zone that has the pool", pooled(0, none), pooled(20_000, testModel("gold", 40_000)), "gold", false, "b:1"},
		{"nowhere", pooled(0, none), pooled(0, none), "gold", false, ""},
		{"over to the others where the pool is full", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 20_000)), "gold", true, "a:1"},
		{"over to the others where the pool is not", pooled(0, none), pooled(20_000, testModel("gold", 10_000)), "gold", true, "a:1"},
		{"a zone of a release that does not say", pooled(0), pooled(0, testModel("gold", 50_000)), "gold", false, "a:1"},
		{"a pool of workers that are there alone", withChange(pooled(0, testModel("gold", 0)), func(m *capacity.ModelCapacity) { m.Ready = 0 }), withChange(pooled(0, none), func(m *capacity.ModelCapacity) { m.Ready = 0 }), "gold", true, "a:1"},
	} {
		q := testQuery()
		q.Pool, q.Overflow = tc.pool, tc.overflow
		v := routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", tc.a), testLocal("b", tc.b)}}
		if got, _ := routing.ChooseRoute(q, &v, time.Time{}, newRNG(), nil); got.Endpoint != tc.want {
			t.Errorf("%s: it goes to %q, want %q", tc.name, got.Endpoint, tc.want)
		}
	}
	far := routing.RoutingView{
		Locals: []routing.LocalInstance{testLocal("a", pooled(0, testModel("gold", 50_000)))},
		Peers:  []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, pooled(50_000, testModel("gold", 0)))},
	}
	q := testQuery()
	q.Pool = "gold"
	if got, _ := routing.ChooseRoute(q, &far, time.Time{}, newRNG(), nil); !got.IsSpilled() {
		t.Errorf("a peer whose pool is free is left for a queue at home: %+v", got)
	}
}

// What a verdict says that a peer has cached is what its fresh statement and the session's home say, and never more than the prompt:
// the gateway's ledger counts only the rest.
func TestDecisionCarriesPeerCachedTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := testQuery()
		q.PromptTokens = rapid.IntRange(1, 3000).Draw(t, "prompt")
		q.Prefix = []uint64{6, 7}
		want, m := 0, testModel("m", 0)
		if sketch := rapid.IntRange(0, 3000).Draw(t, "sketch"); sketch > 0 {
			m.Prefixes = []capacity.PrefixEntry{{Hash: rapid.SampledFrom(q.Prefix).Draw(t, "which"), Tokens: int64(sketch)}}
			want = sketch
		}
		if q.AffinityTokens = rapid.IntRange(0, 3000).Draw(t, "home"); rapid.Bool().Draw(t, "is home") {
			q.AffinityPath = capacity.Path{Region: "ams"}
			want = max(want, q.AffinityTokens)
		}
		p := testPeer("ams", 10*time.Millisecond, m)
		if p.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state")); p.State != capacity.Fresh {
			want = 0
		}
		got, ok := routing.ChooseRoute(q, &routing.RoutingView{Peers: []routing.PeerRegion{p}}, time.Time{}, newRNG(), nil)
		if want = min(want, q.PromptTokens); !ok || !got.IsSpilled() || got.CachedTokens != int64(want) {
			t.Fatalf("%+v, want %d tokens cached there", got, want)
		}
	})
}

func TestRoutingView_OutputTokenCostFollowsTheWorkers(t *testing.T) {
	view := func(prefill, decode int64) *routing.RoutingView {
		return &routing.RoutingView{Locals: []routing.LocalInstance{{Summary: &capacity.Summary{Models: []*capacity.ModelCapacity{{
			Name:     "m",
			Hardware: []capacity.HardwareRates{{Name: "h100", PrefillRate: prefill, DecodeRate: decode}},
		}}}}}}
	}
	for _, tc := range []struct {
		prefill, decode int64
		want            float64
	}{{40_000, 4000, 10}, {0, 0, routing.DefaultDecodeCost}, {100, 1000, routing.MinDecodeCost}, {1_000_000, 1, routing.MaxDecodeCost}} {
		if got := view(tc.prefill, tc.decode).OutputTokenCost("m"); got != tc.want {
			t.Errorf("at %d and %d tokens/s an output token costs %v, want %v", tc.prefill, tc.decode, got, tc.want)
		}
	}
}

// TestExplanationDistinguishesDrainFromNotReady: a drained zone or region is called so, though its workers take nothing, and a
// peer without a gateway that is reachable has not failed the request.
func TestExplanationDistinguishesDrainFromNotReady(t *testing.T) {
	ready := testModel("m", 0)
	none := withChange(ready, func(m *capacity.ModelCapacity) { m.Ready = 0 })
	away := func(p routing.PeerRegion) routing.PeerRegion { p.Gateways = nil; return p }
	drained := func(p routing.PeerRegion) routing.PeerRegion { p.Drained = true; return p }
	ams := func(ms ...capacity.ModelCapacity) routing.PeerRegion {
		return testPeer("ams", 10*time.Millisecond, ms...)
	}
	for _, c := range []struct {
		name, candidate, want string
		view                  routing.RoutingView
	}{
		{"a drained zone that reports no model", "fra/b/l1", routing.IneligibleDraining, routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("b"), func(l *routing.LocalInstance) { l.Drained = true })}}},
		{"a drained zone that has no ready worker", "fra/b/l1", routing.IneligibleDraining, routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("b", none), func(l *routing.LocalInstance) { l.Drained = true })}}},
		{"a zone without the model", "fra/b/l1", routing.IneligibleModel, routing.RoutingView{Locals: []routing.LocalInstance{testLocal("b")}}},
		{"a drained region that reports no model", "ams", routing.IneligibleDraining, routing.RoutingView{Peers: []routing.PeerRegion{drained(ams())}}},
		{"a drained region without a reachable gateway", "ams", routing.IneligibleDraining, routing.RoutingView{Peers: []routing.PeerRegion{drained(away(ams(ready)))}}},
		{"a region without a reachable gateway", "ams", routing.IneligibleNoGateway, routing.RoutingView{Peers: []routing.PeerRegion{away(ams(ready))}}},
		{"a region without the model", "ams", routing.IneligibleModel, routing.RoutingView{Peers: []routing.PeerRegion{ams()}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec explain.Explanation
			routing.ChooseRoute(testQuery(), &c.view, time.Now(), newRNG(), &rec)
			for _, x := range rec.Candidates {
				if x.Name == c.candidate {
					if x.IneligibleReason != c.want {
						t.Errorf("dropped for %q, want %q", x.IneligibleReason, c.want)
					}
					return
				}
			}
			t.Errorf("%s is not among the candidates %+v", c.candidate, rec.Candidates)
		})
	}
}

// TestGradualDrainKeepsItsShare: a zone keeps the share of requests that its drain leaves, and a session that has left does not come back.
func TestGradualDrainKeepsItsShare(t *testing.T) {
	view := func(share float64) *routing.RoutingView {
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 0)), testLocal("b", testModel("m", 20_000))}} // a is the sooner one
		v.Locals[0].SetDrainShare(share)
		return v
	}
	r := newRNG()
	for _, share := range []float64{1, 0.75, 0.5, 0.25, 0} {
		n := 0
		for range 4000 {
			if v, ok := routing.ChooseRoute(testQuery(), view(share), time.Time{}, r, nil); ok && v.Path.Zone == "a" {
				n++
			}
		}
		if got := float64(n) / 4000; got < share-0.03 || got > share+0.03 {
			t.Errorf("with a share of %v the zone gets %v of the requests", share, got)
		}
	}
	for session := range uint64(500) {
		left := false
		for _, share := range []float64{1, 0.9, 0.7, 0.5, 0.3, 0.1, 0} {
			q := testQuery()
			q.Session = session + 1
			v, _ := routing.ChooseRoute(q, view(share), time.Time{}, r, nil)
			if left && v.Path.Zone == "a" {
				t.Fatalf("session %d comes back", session)
			}
			left = v.Path.Zone == "b"
		}
		if !left {
			t.Fatalf("session %d stays in a drained zone", session)
		}
	}
}
