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
)

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
