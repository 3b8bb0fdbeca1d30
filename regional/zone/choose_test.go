package zone_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/zone"
)

// model is one worker's worth of a model: 10,000 tokens/s of prefill and room for all.
func model(name string, ahead int64) capacity.Model {
	return capacity.Model{
		Name: name, Ready: 1, Total: 1, Hardware: []capacity.Hardware{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}},
		KVTotal: 400_000, KVFree: 400_000, SlotsTotal: 256, SlotsFree: 256, Ahead: [spec.NumClasses]int64{ahead, ahead, ahead},
		Headroom: [spec.NumClasses]int64{5000, 5000, 5000}, MaxContext: 32_000,
	}
}

func local(zoneName string, ms ...capacity.Model) zone.Local {
	return zone.Local{Summary: &capacity.Summary{Path: capacity.Path{Region: "fra", Zone: zoneName, Instance: "l1"}, Endpoint: zoneName + ":1", Models: ms}}
}

func peer(region string, rtt time.Duration, ms ...capacity.Model) zone.Peer {
	return zone.Peer{
		Region: region, Gateways: []zone.PeerGateway{{Name: region + "-gw", Endpoint: region + ":1"}}, RTT: rtt,
		Summary: &capacity.Summary{Path: capacity.Path{Region: region}, Models: ms},
	}
}

func query() *zone.Query {
	return &zone.Query{Model: "m", PromptTokens: 1000, MaxTokens: 100, Class: spec.Standard, Spill: true, Margin: 20 * time.Millisecond}
}

func rng() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func with[T any](v T, change func(*T)) T { change(&v); return v }

// unheard is a peer of which nobody tells any more.
func unheard(p zone.Peer) zone.Peer {
	p.State, p.Unheard = capacity.Stale, true
	return p
}

func TestChoose(t *testing.T) {
	busy, free := model("m", 20_000), model("m", 0)
	none := with(free, func(m *capacity.Model) { m.Ready = 0 })
	warm := with(none, func(m *capacity.Model) { m.Warm = 1 })
	cold := with(none, func(m *capacity.Model) { m.Cold = 2 })
	for _, tc := range []struct {
		name   string
		view   zone.View
		query  func(*zone.Query)
		want   string // endpoint; empty: none
		reason string
	}{
		{"the sooner zone", zone.View{Locals: []zone.Local{local("a", busy), local("b", free)}}, nil, "b:1", zone.ReasonSoonest},
		{"not the model's", zone.View{Locals: []zone.Local{local("a", model("other", 0))}}, nil, "", zone.ReasonNoneServes},
		{"nothing ready", zone.View{Locals: []zone.Local{local("a", none)}}, nil, "", zone.ReasonNoneServes},
		{"a load at home if nothing is ready", zone.View{Locals: []zone.Local{local("a", none), local("b", cold)}}, nil, "b:1", zone.ReasonCold},
		{"waking before loading", zone.View{Locals: []zone.Local{local("a", cold), local("b", warm)}}, nil, "b:1", zone.ReasonCold},
		{"ready before cold", zone.View{Locals: []zone.Local{local("a", cold), local("b", busy)}}, nil, "b:1", zone.ReasonSoonest},
		{"a peer that is ready before a load at home", zone.View{Locals: []zone.Local{local("a", warm)}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", zone.ReasonNoLocal},
		{"the zone that loads sooner, as it says itself", zone.View{Locals: []zone.Local{local("a", with(cold, func(m *capacity.Model) { m.ColdMillis = 9000 })), local("b", with(cold, func(m *capacity.Model) { m.ColdMillis = 4000 }))}}, nil, "b:1", zone.ReasonCold},
		{"a quick load before a slow waking", zone.View{Locals: []zone.Local{local("a", with(warm, func(m *capacity.Model) { m.WarmMillis = 20_000 })), local("b", with(cold, func(m *capacity.Model) { m.ColdMillis = 5000 }))}}, nil, "b:1", zone.ReasonCold},
		{"waking at home before a long queue at a peer", zone.View{Locals: []zone.Local{local("a", with(warm, func(m *capacity.Model) { m.WarmMillis = 500 }))}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, busy)}}, nil, "a:1", zone.ReasonCold},
		{"a peer's queue before a longer load at home", zone.View{Locals: []zone.Local{local("a", with(cold, func(m *capacity.Model) { m.ColdMillis = 5000 }))}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, busy)}}, nil, "ams:1", zone.ReasonNoLocal},
		{"never into a peer's cold capacity", zone.View{Peers: []zone.Peer{peer("ams", 10*time.Millisecond, warm)}}, nil, "", zone.ReasonNoneServes},
		{"a load at home before a draining zone", zone.View{Locals: []zone.Local{local("a", cold), with(local("b", free), func(l *zone.Local) { l.Drained = true })}}, nil, "a:1", zone.ReasonCold},
		{"no load for whom another region sent", zone.View{Locals: []zone.Local{local("a", cold)}}, func(q *zone.Query) { q.Hops = 1 }, "", zone.ReasonNoneServes},
		{"context too long", zone.View{Locals: []zone.Local{local("a", free)}}, func(q *zone.Query) { q.PromptTokens = 41_000 }, "", zone.ReasonNoneServes},
		{"excluded", zone.View{Locals: []zone.Local{local("a", free), local("b", busy)}}, func(q *zone.Query) { q.Exclude[1] = "a:1" }, "b:1", zone.ReasonSoonest},
		{"drained zone is left", zone.View{Locals: []zone.Local{with(local("a", free), func(l *zone.Local) { l.Drained = true }), local("b", busy)}}, nil, "b:1", zone.ReasonSoonest},
		{"drained if nothing else", zone.View{Locals: []zone.Local{with(local("a", free), func(l *zone.Local) { l.Drained = true })}}, nil, "a:1", zone.ReasonLastResort},
		{"lost if nothing else", zone.View{Locals: []zone.Local{with(local("a", free), func(l *zone.Local) { l.State = capacity.Lost })}}, nil, "a:1", zone.ReasonLastResort},
		{"stale is usable", zone.View{Locals: []zone.Local{with(local("a", free), func(l *zone.Local) { l.State = capacity.Stale })}}, nil, "a:1", zone.ReasonSoonest},
		{"spill when nothing is here", zone.View{Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", zone.ReasonNoLocal},
		{"spill before a lost local", zone.View{
			Locals: []zone.Local{with(local("a", free), func(l *zone.Local) { l.State = capacity.Lost })},
			Peers:  []zone.Peer{peer("ams", 10*time.Millisecond, free)},
		}, nil, "ams:1", zone.ReasonNoLocal},
		{"the sooner peer", zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", zone.ReasonPeerSooner},
		{"not for less than RTT and margin", zone.View{Locals: []zone.Local{local("a", model("m", 1000))}, Peers: []zone.Peer{peer("ams", 90*time.Millisecond, free)}}, nil, "a:1", zone.ReasonSoonest},
		{"not to stale headroom", zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{with(peer("ams", 10*time.Millisecond, free), func(p *zone.Peer) { p.State = capacity.Stale })}}, nil, "a:1", zone.ReasonSoonest},
		{"to a peer of which nobody can tell any more", zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{unheard(peer("ams", 10*time.Millisecond, free))}}, nil, "ams:1", zone.ReasonPeerSooner},
		{"not to one that had no headroom then", zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{unheard(peer("ams", 10*time.Millisecond, with(free, func(m *capacity.Model) { m.Headroom = [3]int64{} })))}}, nil, "a:1", zone.ReasonSoonest},
		{"not without headroom", zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, with(free, func(m *capacity.Model) { m.Headroom = [3]int64{} }))}}, nil, "a:1", zone.ReasonSoonest},
		{"never twice", zone.View{Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, func(q *zone.Query) { q.Hops = 1 }, "", zone.ReasonNoneServes},
		{"not when policy forbids", zone.View{Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, func(q *zone.Query) { q.Spill = false }, "", zone.ReasonNoneServes},
		{"not out of residency", zone.View{Peers: []zone.Peer{peer("iad", 10*time.Millisecond, free)}}, func(q *zone.Query) { q.Residency = []string{"eu"} }, "", zone.ReasonNoneServes},
		{
			"inside residency",
			zone.View{Peers: []zone.Peer{peer("iad", time.Millisecond, free), with(peer("ams", 10*time.Millisecond, free), func(p *zone.Peer) { p.Residency = []string{"eu"} })}},
			func(q *zone.Query) { q.Residency = []string{"eu"} }, "ams:1", zone.ReasonNoLocal,
		},
		{
			"another label satisfies no residency",
			zone.View{Peers: []zone.Peer{
				with(peer("iad", time.Millisecond, free), func(p *zone.Peer) { p.Residency = []string{"us", "ca"} }),
				with(peer("ams", 10*time.Millisecond, free), func(p *zone.Peer) { p.Residency = []string{"nl", "eu"} }),
			}},
			func(q *zone.Query) { q.Residency = []string{"uk", "eu"} }, "ams:1", zone.ReasonNoLocal,
		},
		{
			"not out of the tenant's regions, to a third that is one",
			zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{peer("iad", time.Millisecond, free), peer("ams", 10*time.Millisecond, free)}},
			func(q *zone.Query) { q.Regions = []string{"fra", "ams"} }, "ams:1", zone.ReasonPeerSooner,
		},
		{
			"a region of the tenant's must also be of its jurisdiction",
			zone.View{Locals: []zone.Local{local("a", busy)}, Peers: []zone.Peer{with(peer("ams", time.Millisecond, free), func(p *zone.Peer) { p.Residency = []string{"us"} })}},
			func(q *zone.Query) { q.Regions, q.Residency = []string{"fra", "ams"}, []string{"eu"} }, "a:1", zone.ReasonSoonest,
		},
		{"drained region goes to a peer", zone.View{Drained: true, Locals: []zone.Local{local("a", free)}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, free)}}, nil, "ams:1", zone.ReasonRegionDrain},
		{"drained region without a peer serves", zone.View{Drained: true, Locals: []zone.Local{local("a", free)}}, nil, "a:1", zone.ReasonSoonest},
		{"no room for KV", zone.View{Locals: []zone.Local{local("a", with(free, func(m *capacity.Model) { m.KVFree = 10 })), local("b", model("m", 2000))}}, nil, "b:1", zone.ReasonSoonest},
		{"no slot", zone.View{Locals: []zone.Local{local("a", with(free, func(m *capacity.Model) { m.SlotsFree = 0 })), local("b", model("m", 1000))}}, nil, "b:1", zone.ReasonSoonest},
		{
			"cached prefix",
			zone.View{Locals: []zone.Local{local("a", free), local("b", with(model("m", 200), func(m *capacity.Model) { m.Prefixes = []capacity.Prefix{{Hash: 7, Tokens: 900}} }))}},
			func(q *zone.Query) { q.Prefix = []uint64{6, 7} }, "b:1", zone.ReasonSoonest,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := query()
			if tc.query != nil {
				tc.query(q)
			}
			var rec explain.Record
			got, ok := zone.Choose(q, &tc.view, time.Time{}, rng(), &rec)
			if got.Endpoint != tc.want || ok != (tc.want != "") || rec.Reason != tc.reason {
				t.Fatalf("chose %+v (%v) because of %q, want %q because of %q\n%+v", got, ok, rec.Reason, tc.want, tc.reason, rec)
			}
			if want := len(tc.view.Locals) + len(tc.view.Peers); len(rec.Candidates) != want {
				t.Errorf("%d candidates explained, want %d", len(rec.Candidates), want)
			}
			if ok && got.Spilled() != (len(got.Path.Zone) == 0) {
				t.Errorf("verdict %+v is half a peer", got)
			}
		})
	}
}

func TestLedgerSpreadsABurstBetweenSummaries(t *testing.T) {
	v := zone.View{Locals: []zone.Local{local("a", model("m", 0)), local("b", model("m", 0)), local("c", model("m", 0))}}
	q := query()
	q.Ledger = zone.NewLedger()
	r, count := rng(), map[string]int{}
	for range 300 {
		got, ok := zone.Choose(q, &v, time.Time{}, r, nil)
		if !ok {
			t.Fatal("no verdict")
		}
		q.Ledger.Issue(got.Path, q.Model, int64(q.PromptTokens), int64(q.PromptTokens+q.MaxTokens))
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

// genView draws views in which anything may be wrong with anybody.
func genView(t *rapid.T) *zone.View {
	gen := func(name string) capacity.Model {
		m := model("m", rapid.Int64Range(0, 50_000).Draw(t, name+" ahead"))
		m.Ready = rapid.Int64Range(0, 3).Draw(t, name+" ready")
		m.KVFree = rapid.Int64Range(0, m.KVTotal).Draw(t, name+" kv")
		m.Headroom[spec.Standard] = rapid.Int64Range(0, 2).Draw(t, name+" headroom")
		if rapid.IntRange(0, 4).Draw(t, name+" other") == 0 {
			m.Name = "other"
		}
		return m
	}
	v := &zone.View{Drained: rapid.Bool().Draw(t, "drained")}
	for i := range rapid.IntRange(0, 5).Draw(t, "locals") {
		l := local(fmt.Sprintf("z%d", i), gen("local"))
		l.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state"))
		l.Drained = rapid.Bool().Draw(t, "zone drained")
		v.Locals = append(v.Locals, l)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "peers") {
		p := peer(fmt.Sprintf("p%d", i), time.Duration(rapid.IntRange(0, 300).Draw(t, "rtt"))*time.Millisecond, gen("peer"))
		p.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state"))
		p.Residency = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"eu", "us"}), rapid.ID).Draw(t, "labels")
		v.Peers = append(v.Peers, p)
	}
	return v
}

func TestChooseKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, q := genView(t), query()
		q.Hops = rapid.IntRange(0, 1).Draw(t, "hops")
		if rapid.Bool().Draw(t, "resident") {
			q.Residency = []string{"eu"}
		}
		if rapid.Bool().Draw(t, "fenced") {
			q.Regions = []string{"home", "p1", "p2"}
		}
		q.Exclude[0] = rapid.SampledFrom([]string{"", "z0:1", "p0:1"}).Draw(t, "exclude")
		seed := rapid.Uint64().Draw(t, "seed")
		got, ok := zone.Choose(q, v, time.Time{}, rand.New(rand.NewPCG(seed, 1)), nil)
		var rec explain.Record
		again, ok2 := zone.Choose(q, v, time.Time{}, rand.New(rand.NewPCG(seed, 1)), &rec)
		if got != again || ok != ok2 {
			t.Fatalf("the same inputs gave %+v and, explained, %+v", got, again)
		}
		usable := false
		for _, l := range v.Locals {
			m := l.Summary.Model("m")
			can := m != nil && m.Ready > 0 && l.Summary.Endpoint != q.Exclude[0]
			usable = usable || can
			if ok && got.Endpoint == l.Summary.Endpoint && !can {
				t.Fatalf("chose %+v, which cannot serve", got)
			}
		}
		for _, p := range v.Peers {
			m := p.Summary.Model("m")
			can := m != nil && m.Ready > 0 && p.Gateways[0].Endpoint != q.Exclude[0] && q.Hops == 0 && (len(q.Residency) == 0 || slices.Contains(p.Residency, "eu")) &&
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

func bigView(n int) *zone.View {
	v := &zone.View{}
	for i := range n {
		v.Locals = append(v.Locals, local(fmt.Sprintf("z%03d", i), model("a", 0), model("m", int64(i%7)*100), model("n", 0)))
	}
	for i := range 8 {
		v.Peers = append(v.Peers, peer(fmt.Sprintf("p%d", i), 50*time.Millisecond, model("m", 0)))
	}
	return v
}

func TestChooseAllocatesNothing(t *testing.T) {
	v, q, r := bigView(32), query(), rng()
	q.Ledger = zone.NewLedger()
	q.Ledger.Issue(v.Locals[3].Summary.Path, "m", 10, 10)
	if n := testing.AllocsPerRun(1000, func() { zone.Choose(q, v, time.Time{}, r, nil) }); n != 0 {
		t.Fatalf("Choose allocates %v times, want 0", n)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{4, 32} {
		b.Run(fmt.Sprintf("locals=%d/peers=8", n), func(b *testing.B) {
			v, q, r := bigView(n), query(), rng()
			q.Ledger = zone.NewLedger()
			for i := range v.Locals {
				q.Ledger.Issue(v.Locals[i].Summary.Path, "m", 10, 10)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := zone.Choose(q, v, time.Time{}, r, nil); !ok {
					b.Fatal("no verdict")
				}
			}
		})
	}
}
