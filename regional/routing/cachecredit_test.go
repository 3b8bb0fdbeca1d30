package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// A session stays where its prompt is cached until that costs more than computing it again elsewhere.
func TestSessionStaysUntilMovingIsCheaper(t *testing.T) {
	at := func(ahead int64) routing.LocalInstance { return testLocal("a", testModel("m", ahead)) }
	q := testQuery()
	q.AffinityPath, q.AffinityTokens = at(0).Summary.Path, 900 // 90 ms of prefill
	for _, tc := range []struct {
		ahead int64
		want  string
	}{{0, "a:1"}, {800, "a:1"}, {1200, "b:1"}} {
		v := routing.RoutingView{Locals: []routing.LocalInstance{at(tc.ahead), testLocal("b", testModel("m", 0))}}
		if got, _ := routing.ChooseRoute(q, &v, time.Time{}, newRNG(), nil); got.Endpoint != tc.want {
			t.Errorf("with %d tokens ahead at home it goes to %s, want %s", tc.ahead, got.Endpoint, tc.want)
		}
	}
	stale := routing.RoutingView{Locals: []routing.LocalInstance{withChange(at(0), func(l *routing.LocalInstance) { l.State = capacity.Stale }), testLocal("b", testModel("m", 0))}}
	away := 0
	for seed := range uint64(100) {
		if got, _ := routing.ChooseRoute(q, &stale, time.Time{}, rand.New(rand.NewPCG(seed, 1)), nil); got.Endpoint == "b:1" {
			away++
		}
	}
	if away < 25 || away > 75 {
		t.Errorf("a home that is not heard is left %d times of 100, want as often as chance has it", away)
	}
}

// The next steps of one session come at the same moment. What each has cached at home is no wait for the others, so that they
// stay together until what they must compute costs more than computing one of them elsewhere.
func TestConcurrentRequestsOfSessionStayTogether(t *testing.T) {
	home := testLocal("a", testModel("m", 0))
	v := routing.RoutingView{Locals: []routing.LocalInstance{home, testLocal("b", testModel("m", 0))}}
	ledger, stayed := routing.NewLedger(), 0
	for range 20 {
		q := testQuery() // a prompt takes 100 ms, and what is new of it 10
		q.AffinityPath, q.AffinityTokens, q.Ledger = home.Summary.Path, 900, ledger
		got, _ := routing.ChooseRoute(q, &v, time.Time{}, newRNG(), nil)
		if got.Endpoint != "a:1" {
			if got.CachedTokens != 0 {
				t.Errorf("%d tokens are believed to be cached where none is", got.CachedTokens)
			}
			break
		}
		if got.CachedTokens != 900 {
			t.Errorf("%d tokens are believed to be cached at home, want 900", got.CachedTokens)
		}
		ledger.IssueTicket(got.Path, q.Model, int64(q.PromptTokens)-got.CachedTokens, 1100)
		stayed++
	}
	if stayed < 8 || stayed > 10 {
		t.Errorf("%d siblings stay together, want about 9", stayed)
	}
	old := routing.RoutingView{Locals: []routing.LocalInstance{withChange(home, func(l *routing.LocalInstance) { l.State = capacity.Stale })}}
	q := testQuery()
	q.AffinityPath, q.AffinityTokens = home.Summary.Path, 900
	if got, _ := routing.ChooseRoute(q, &old, time.Time{}, newRNG(), nil); got.CachedTokens != 0 {
		t.Errorf("%d tokens are believed to be cached by an old word", got.CachedTokens)
	}
}

// Gateways that know the same send a new session to the same zone, and sessions spread by the zones' weights.
func TestGatewaysPlaceNewSessionsAlike(t *testing.T) {
	v := routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", testModel("m", 0)), func(l *routing.LocalInstance) { l.Weight = 3 }), testLocal("b", testModel("m", 0))}}
	count := map[string]int{}
	for s := range uint64(2000) {
		q := testQuery()
		q.Session = s*0x9e3779b97f4a7c15 + 1
		one, _ := routing.ChooseRoute(q, &v, time.Time{}, rand.New(rand.NewPCG(1, s)), nil)
		two, _ := routing.ChooseRoute(q, &v, time.Time{}, rand.New(rand.NewPCG(2, s)), nil)
		if one.Endpoint != two.Endpoint {
			t.Fatalf("session %d goes to %s by one gateway and to %s by another", s, one.Endpoint, two.Endpoint)
		}
		count[one.Endpoint]++
	}
	if n := count["a:1"]; n < 1400 || n > 1600 {
		t.Errorf("the zone of weight 3 has %d of 2000 sessions, want 1500", n)
	}
}

// Of three near-equal zones each takes its weight, where nothing is in flight that tells them apart.
func TestNearEqualZonesShareByWeight(t *testing.T) {
	weigh := func(w float64) func(*routing.LocalInstance) { return func(l *routing.LocalInstance) { l.Weight = w } }
	v := routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("a", testModel("m", 0)), weigh(6)), withChange(testLocal("b", testModel("m", 0)), weigh(3)), testLocal("c", testModel("m", 0)), testLocal("d", testModel("m", 20_000))}}
	r, count := newRNG(), map[string]int{}
	for range 10_000 {
		got, _ := routing.ChooseRoute(testQuery(), &v, time.Time{}, r, nil)
		count[got.Endpoint]++
	}
	if a, b, c := count["a:1"], count["b:1"], count["c:1"]; a < 5700 || a > 6300 || b < 2700 || b > 3300 || c < 800 || c > 1200 || count["d:1"] > 0 {
		t.Errorf("weights 6, 3, 1 took %v of 10000; the busy zone none", count)
	}
}

func TestSessionTableIsBounded(t *testing.T) {
	s := routing.NewSessionTable()
	p := capacity.Path{Region: "r", Zone: "z", Instance: "l"}
	s.RecordServed(7, p, 70)
	for i := range uint64(500_000) {
		s.RecordServed(1000+i, p, 1)
		if i%1000 == 0 {
			s.RecordServed(7, p, 70)
		}
	}
	if n := s.Len(); n > 70_000 {
		t.Errorf("%d sessions are remembered", n)
	}
	if at, tokens := s.FindLatest(0, 7); at != p || tokens != 70 {
		t.Errorf("one that is seen often is forgotten: %v, %d", at, tokens)
	}
	if _, tokens := s.FindLatest(1000); tokens != 0 {
		t.Error("one that was not seen for long is remembered")
	}
	if _, tokens := s.FindLatest(); tokens != 0 {
		t.Error("no key finds something")
	}
}

func BenchmarkSessionTableFindLatest(b *testing.B) {
	s := routing.NewSessionTable()
	var keys []uint64
	for i := range uint64(60_000) {
		s.RecordServed(i+1, capacity.Path{Region: "r", Zone: fmt.Sprint(i % 3)}, 1)
	}
	for i := range uint64(18) {
		keys = append(keys, 1e6+i)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.FindLatest(keys...)
	}
}

// The usage in a child's responses changes the expected cache retention of that child only.
func TestCacheRetentionIsLearnedPerInstance(t *testing.T) {
	full, roomy, silent := capacity.Path{Zone: "full"}, capacity.Path{Zone: "roomy"}, capacity.Path{Zone: "silent"}
	retention := routing.NewCacheRetention()
	for range 100 {
		retention.RecordAnswer(full, 1000, 100) // a prefix that all prompts share
		retention.RecordAnswer(roomy, 1000, 1200)
		retention.RecordAnswer(silent, 1000, 0) // an engine that does not report cached tokens
	}
	if got := retention.FractionFor(full); got < 0.1 || got > 0.12 {
		t.Errorf("a child that had a tenth of the prompt cached has retention %.2f", got)
	}
	if r, s := retention.FractionFor(roomy), retention.FractionFor(silent); r != 1 || s != 1 {
		t.Errorf("retention %.2f of a child that had all cached, %.2f of one that reports nothing, want 1 of both", r, s)
	}
	for range 100 {
		retention.RecordAnswer(full, 1000, 1000)
	}
	if got := retention.FractionFor(full); got < 0.98 {
		t.Errorf("a child that has all cached again has retention %.2f", got)
	}
}

func TestCacheRetentionStaysBetweenZeroAndOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retention := routing.NewCacheRetention()
		for range rapid.IntRange(1, 200).Draw(t, "answers") {
			at := capacity.Path{Zone: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "zone"))}
			retention.RecordAnswer(at, rapid.Int().Draw(t, "expected"), rapid.Int().Draw(t, "cached"))
			if got := retention.FractionFor(at); !(got >= 0 && got <= 1) {
				t.Fatalf("retention %v", got)
			}
		}
	})
}

// The number of children with a learned retention is bounded, however many names occur. The newest is always among them.
func TestCacheRetentionIsBounded(t *testing.T) {
	const most = 4096
	retention := routing.NewCacheRetention()
	child := func(i int) capacity.Path { return capacity.Path{Zone: "z", Instance: fmt.Sprint(i)} }
	for i := range 2*most + 10 {
		retention.RecordAnswer(child(i), 1000, 1)
		if !(retention.FractionFor(child(i)) < 1) {
			t.Fatalf("child %d had nothing cached and has retention 1", i)
		}
		if i == most-1 && !(retention.FractionFor(child(0)) < 1) {
			t.Fatalf("the first of %d is forgotten", most)
		}
	}
	known := 0
	for i := range 2*most + 10 {
		if retention.FractionFor(child(i)) < 1 {
			known++
		}
	}
	if known > most {
		t.Errorf("%d are remembered, want %d at the most", known, most)
	}
}
