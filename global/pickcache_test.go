package global

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

// TestPickCacheChangesNoAnswer queries snapshots that share a pickCache in any order, while regions are drained, lost
// and restored: each answer is the one that would be picked without the cache.
func TestPickCacheChangesNoAnswer(t *testing.T) {
	base := newStaticSnapshot(t)
	rapid.Check(t, func(t *rapid.T) {
		var m *pickCache
		for range 12 {
			v := *base
			v.Drained, v.Unavailable = steer.RegionSet{}, []steer.RegionSet{{}}
			for r := range v.Regions {
				if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
					v.Drained.Add(r)
				}
				if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
					v.Unavailable[0].Add(r)
				}
			}
			m = m.reuseFor(&v)
			for range 8 {
				client := netip.AddrFrom4([4]byte{
					rapid.SampledFrom([]byte{192, 198, 203, 10, 9}).Draw(t, "a"), rapid.SampledFrom([]byte{0, 51}).Draw(t, "b"),
					rapid.SampledFrom([]byte{2, 100, 113}).Draw(t, "c"), 7,
				})
				v.pickCache = nil
				want := v.AnswerService(0, client)
				v.pickCache = m
				got := v.AnswerService(0, client)
				if got.Records != want.Records || got.Scope != want.Scope || got.ForcedByDrain != want.ForcedByDrain || got.OK != want.OK {
					t.Fatalf("%s: %+v, want %+v", client, got, want)
				}
			}
		}
	})
}

func TestPickCacheIsReusedWhileNothingChanges(t *testing.T) {
	v := newStaticSnapshot(t)
	var m *pickCache
	m = m.reuseFor(v)
	v.pickCache = m
	v.AnswerService(0, netip.MustParseAddr(clientAddrs["tokyo"]))
	next := *v
	next.Unavailable = []steer.RegionSet{{}}
	if m.reuseFor(&next) != m {
		t.Error("an unchanged snapshot gets a new cache")
	}
	next.Drained.Add(0)
	if m.reuseFor(&next) == m {
		t.Error("a drain keeps what was picked before it")
	}
	if n := len(m.byService); m.cellEntry(n, 0) != nil {
		t.Error("a service beyond the bound is remembered")
	}
}

// TestScopeMapsChangeNoAnswer: the map of a service sends each client where it would be sent without one, and every
// other client within the scope to the same region.
func TestScopeMapsChangeNoAnswer(t *testing.T) {
	base := newStaticSnapshot(t)
	rapid.Check(t, func(t *rapid.T) {
		v := *base
		v.Drained, v.Unavailable = steer.RegionSet{}, []steer.RegionSet{{}}
		for r := range v.Regions {
			if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
				v.Drained.Add(r)
			}
			if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				v.Unavailable[0].Add(r)
			}
		}
		var none *pickCache
		v.pickCache = none.reuseFor(&v)
		v.pickCache.scopeMaps[0].Store(v.buildScopeMap(0))
		for range 8 {
			b := netip.MustParseAddr(rapid.SampledFrom([]string{
				"192.0.2.7", "198.51.100.7", "203.0.113.7", "10.0.0.7", "9.9.9.9", "2001:db8:500::1", "2001:db8:8000::", "::ffff:203.0.113.7",
			}).Draw(t, "client")).AsSlice()
			b[len(b)-1] ^= rapid.Byte().Draw(t, "last")
			client, _ := netip.AddrFromSlice(b)
			got := v.AnswerService(0, client)
			plain := v
			plain.pickCache = nil
			want := plain.AnswerService(0, client)
			if got.Records != want.Records || got.ForcedByDrain != want.ForcedByDrain || got.Scope > want.Scope {
				t.Fatalf("%s: %+v, want %+v", client, got, want)
			}
			for i := int(got.Scope); i < 8*len(b); i++ {
				if rapid.Bool().Draw(t, "bit") {
					b[i/8] ^= 0x80 >> (i % 8)
				}
			}
			other, _ := netip.AddrFromSlice(b)
			if a := v.AnswerService(0, other); a.Records != got.Records || a.Scope != got.Scope {
				t.Fatalf("%s is in the scope of %s: %+v, want %+v", other, client, a, got)
			}
		}
	})
}

// TestScopeMapsAreBuiltForServicesInUse: a service with queries gets its map, and one without does not.
func TestScopeMapsAreBuiltForServicesInUse(t *testing.T) {
	v := newStaticSnapshot(t)
	v.pickCache = v.pickCache.reuseFor(v)
	if v.nextUnmappedService() >= 0 {
		t.Error("a map is built before any query")
	}
	client := netip.MustParseAddr(clientAddrs["tokyo"])
	before := v.AnswerService(0, client)
	if v.nextUnmappedService() != 0 {
		t.Fatal("no map is built for a service with queries")
	}
	v.pickCache.scopeMaps[0].Store(v.buildScopeMap(0))
	after := v.AnswerService(0, client)
	if v.nextUnmappedService() >= 0 || after.Scope > before.Scope || v.buildScopeMap(0).Networks() >= v.countCells() {
		t.Errorf("scope %d became %d; %d networks of %d", before.Scope, after.Scope, v.buildScopeMap(0).Networks(), v.countCells())
	}
}

// countCells returns the number of networks that the atlas distinguishes without a map.
func (v *nodeSnapshot) countCells() int {
	return v.atlas.BuildScopeMap(func(cell int32) int32 { return cell + 1 }).Networks()
}

// newStaticSnapshot is a snapshot with every region fresh, made without any node.
func newStaticSnapshot(tb testing.TB) *nodeSnapshot {
	tb.Helper()
	atlas, err := geofiles.OpenAtlas(geo.Config{Demo: true})
	if err != nil {
		tb.Fatal(err)
	}
	f, err := newNodePolicy(1, []byte(testSpecText()), atlas)
	if err != nil {
		tb.Fatal(err)
	}
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		s := summaryWithCapacity(10000, 8)
		s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
		book.PutSummary(s, now)
	}
	v := testSnapshot(f, &consensus.State{}, book.BuildView(now), soloVotes(), now, true)
	v.Plan = steer.SolvePlan(v.BuildPlanInput()).Plan
	v.Table = steer.CompileTable(f.Spec, f.PriorGeo, v.Plan)
	return v
}

// copyPolicy returns a copy of a snapshot's policy, to be changed.
func copyPolicy(v *nodeSnapshot) *nodePolicy {
	f, p := *v.policy, *v.SteeringPolicy
	f.SteeringPolicy = &p
	return &f
}

// locationOf returns the location of a region.
func locationOf(r *spec.Region) geo.Location {
	return geo.Location{City: r.Place.City, Lat: r.Place.Lat, Lon: r.Place.Lon}
}

func TestAnswerAllocatesNothing(t *testing.T) {
	v, client := newStaticSnapshot(t), netip.MustParseAddr(clientAddrs["tokyo"])
	if n := testing.AllocsPerRun(1000, func() { v.AnswerService(0, client) }); n != 0 {
		t.Fatalf("an answer allocates %v times, want 0", n)
	}
}

func TestAnswerScopes(t *testing.T) {
	v := newStaticSnapshot(t)
	for client, want := range map[string]uint8{
		"192.0.2.7":             26,      // one region for the whole prefix
		"::ffff:192.0.2.7":      96 + 26, // the same, counted as it was queried
		"10.1.2.3":              24,      // no location: spread by network
		"2001:db8:ffff:ffff::1": v.atlas.Locate(netip.MustParseAddr("2001:db8:ffff:ffff::1")).Scope,
	} {
		a := v.AnswerService(0, netip.MustParseAddr(client))
		if !a.OK || a.Scope < want || client != "2001:db8:ffff:ffff::1" && a.Scope != want {
			t.Errorf("%s: %+v, want scope %d", client, a, want)
		}
	}
	id, ok := v.LookupService([]byte("tokyo." + testService))
	if a := v.AnswerService(id, netip.MustParseAddr("192.0.2.7")); !ok || a.Scope != 0 || a.Addrs[0] != testGatewayAddrs["tokyo"] {
		t.Errorf("child name: %+v, want Tokyo for every client", a)
	}
	for name, want := range map[string]bool{"api.example.": true, testService: true, "example.": false, "x." + testService: false} {
		if v.HasName(name) != want {
			t.Errorf("Exists(%q) is %v", name, !want)
		}
	}
}

// TestExplanationsHideSecrets checks that public explanations have nothing that only operators may see.
func TestExplanationsHideSecrets(t *testing.T) {
	v := newStaticSnapshot(t)
	secrets := []string{"acme", "eurocorp", "sha256", "127.0.", "http", ":8080", "gv", "gf", "gt", "h100", "spec.yaml", "10000"}
	for _, client := range []string{"192.0.2.7", "198.51.100.7", "10.1.2.3", "2001:db8::1", "8.8.8.8", "::1"} {
		addr := netip.MustParseAddr(client)
		texts := v.DescribeClient(addr)
		for id := range len(v.Spec.Services) * (1 + len(v.Spec.Regions)) {
			texts = append(texts, v.ExplainAnswer(id, addr)...)
		}
		for _, text := range texts {
			for _, s := range secrets {
				if strings.Contains(text, s) {
					t.Errorf("%s receives %q", client, text)
				}
			}
		}
	}
}

func TestNewTicketKeysWaitUntilGatewaysHoldThem(t *testing.T) {
	now := time.Now()
	young, old := consensus.TicketKey{Secret: []byte("young"), At: now}, consensus.TicketKey{Secret: []byte("old"), At: now.Add(-time.Hour)}
	for _, c := range []struct {
		keys []consensus.TicketKey
		want string
	}{{nil, ""}, {[]consensus.TicketKey{young}, "young"}, {[]consensus.TicketKey{young, old}, "old"}, {[]consensus.TicketKey{old}, "old"}} {
		if got := string(signingKey(c.keys, now)); got != c.want {
			t.Errorf("%v sign with %q, want %q", c.keys, got, c.want)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	v, client := newStaticSnapshot(b), netip.MustParseAddr(clientAddrs["tokyo"])
	v.pickCache = v.pickCache.reuseFor(v)
	b.ReportAllocs()
	for b.Loop() {
		v.AnswerService(0, client)
	}
}
