package global

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// stillView is a View with every region fresh, made without any node.
func stillView(tb testing.TB) *View {
	tb.Helper()
	atlas, err := geo.Open(geo.Config{Demo: true})
	if err != nil {
		tb.Fatal(err)
	}
	f, err := newFrame(1, []byte(specText()), atlas)
	if err != nil {
		tb.Fatal(err)
	}
	now, book := time.Now(), capacity.NewBook(capacity.Thresholds{})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		s := capacityOf(10000, 8)
		s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
		book.Put(s, now)
	}
	v := newView(f, &consensus.State{}, book.View(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
	v.plan = steer.Solve(v.input()).Plan
	v.table = steer.Compile(f.spec, f.geo, v.plan)
	return v
}

func TestAnswerAllocatesNothing(t *testing.T) {
	v, client := stillView(t), netip.MustParseAddr(clients["tokyo"])
	if n := testing.AllocsPerRun(1000, func() { v.Answer(0, client) }); n != 0 {
		t.Fatalf("an answer allocates %v times, want 0", n)
	}
}

func TestScopes(t *testing.T) {
	v := stillView(t)
	for client, want := range map[string]uint8{
		"192.0.2.7":             26,      // one region for the whole prefix
		"::ffff:192.0.2.7":      96 + 26, // the same, counted as it was asked
		"10.1.2.3":              24,      // no place: spread by network
		"2001:db8:ffff:ffff::1": v.atlas.Locate(netip.MustParseAddr("2001:db8:ffff:ffff::1")).Scope,
	} {
		a := v.Answer(0, netip.MustParseAddr(client))
		if !a.OK || a.Scope < want || client != "2001:db8:ffff:ffff::1" && a.Scope != want {
			t.Errorf("%s: %+v, want scope %d", client, a, want)
		}
	}
	id, ok := v.Lookup([]byte("tokyo." + service))
	if a := v.Answer(id, netip.MustParseAddr("192.0.2.7")); !ok || a.Scope != 0 || a.Addrs[0] != gatewayAddr["tokyo"] {
		t.Errorf("child name: %+v, want Tokyo for everybody", a)
	}
	for name, want := range map[string]bool{"api.example.": true, service: true, "example.": false, "x." + service: false} {
		if v.Exists(name) != want {
			t.Errorf("Exists(%q) is %v", name, !want)
		}
	}
}

func TestGatewaysThatShareAnAddressAreAnsweredOnce(t *testing.T) {
	a, b := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	r := &spec.Region{Gateways: []spec.Gateway{
		{Name: "g1", Addresses: []netip.Addr{a}}, {Name: "g2", Addresses: []netip.Addr{b, a}}, {Name: "g3", Addresses: []netip.Addr{b}},
	}}
	if got := addresses(r, func(string) bool { return true }); !slices.Equal(got, []netip.Addr{a, b}) {
		t.Errorf("answered with %v", got)
	}
	if got := addresses(r, func(name string) bool { return name == "g3" }); !slices.Equal(got, []netip.Addr{b}) {
		t.Errorf("with g3 alone answered with %v", got)
	}
}

// TestExplanationsTellNobodysSecrets holds what anybody may ask for against what only operators may know.
func TestExplanationsTellNobodysSecrets(t *testing.T) {
	v := stillView(t)
	secrets := []string{"acme", "eurocorp", "sha256", "127.0.", "http", ":8080", "gv", "gf", "gt", "h100", "spec.yaml", "10000"}
	for _, client := range []string{"192.0.2.7", "198.51.100.7", "10.1.2.3", "2001:db8::1", "8.8.8.8", "::1"} {
		addr := netip.MustParseAddr(client)
		texts := v.Whoami(addr)
		for id := range len(v.names) {
			texts = append(texts, v.Why(id, addr)...)
		}
		for _, text := range texts {
			for _, s := range secrets {
				if strings.Contains(text, s) {
					t.Errorf("%s is told %q", client, text)
				}
			}
		}
	}
}

func TestNewTicketKeysWaitUntilGatewaysHoldThem(t *testing.T) {
	now := time.Now()
	young, old := consensus.Key{Secret: []byte("young"), At: now}, consensus.Key{Secret: []byte("old"), At: now.Add(-time.Hour)}
	for _, c := range []struct {
		keys []consensus.Key
		want string
	}{{nil, ""}, {[]consensus.Key{young}, "young"}, {[]consensus.Key{young, old}, "old"}, {[]consensus.Key{old}, "old"}} {
		if got := string(signingKey(c.keys, now)); got != c.want {
			t.Errorf("%v sign with %q, want %q", c.keys, got, c.want)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	v, client := stillView(b), netip.MustParseAddr(clients["tokyo"])
	v.memo = v.memo.of(v)
	b.ReportAllocs()
	for b.Loop() {
		v.Answer(0, client)
	}
}
