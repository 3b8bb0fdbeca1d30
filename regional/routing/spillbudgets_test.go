package routing_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// However requests come, what several gateways of a region spill into a peer by choice in any second is no more than the
// region's share of its headroom, and one request each.
func TestSpillsStayWithinBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gateways := rapid.IntRange(1, 3).Draw(t, "gateways")
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 50_000))}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, testModel("m", 0))}}
		const share, headroom = 0.5, 5000.0 // of model
		var spills []*routing.SpillBudgets
		for range gateways {
			spills = append(spills, routing.NewSpillBudgets())
		}
		now, r := time.Unix(1000, 0), newRNG()
		type spill struct {
			at     time.Time
			tokens int
		}
		var sent []spill
		longest := 0
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			q := testQuery()
			q.PromptTokens = rapid.IntRange(1, 4000).Draw(t, "tokens")
			longest = max(longest, q.PromptTokens)
			q.SpillBudgets, q.SpillShare = spills[rapid.IntRange(0, gateways-1).Draw(t, "gateway")], share/float64(gateways)
			got, ok := routing.ChooseRoute(q, v, now, r, nil)
			if !ok {
				t.Fatal("no verdict")
			}
			if !got.IsSpilled() {
				if got.SpillHeld != routing.SpillHeldBudget || got.SpillHeldPeer != "ams" {
					t.Fatalf("it stays because of %q of %q", got.SpillHeld, got.SpillHeldPeer)
				}
				continue
			}
			q.SpillBudgets.TakeTokens(got.Path.Region, q.Model, q.PromptTokens, got.SpillRate, now)
			sent = append(sent, spill{now, q.PromptTokens})
		}
		for i := range sent {
			sum := 0
			for _, s := range sent[i:] {
				if s.at.Sub(sent[i].at) < time.Second {
					sum += s.tokens
				}
			}
			if most := 2*share*headroom + float64(gateways*longest); float64(sum) > most { // a full bucket, what it is refilled with, and a debt each
				t.Fatalf("%d tokens were spilled inside a second, the budget allows %v", sum, most)
			}
		}
	})
}

func TestRefusalPausesSpillsUntilAcceptance(t *testing.T) {
	v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 50_000))}, Peers: []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, testModel("m", 0))}}
	s, now, r := routing.NewSpillBudgets(), time.Unix(1000, 0), newRNG()
	goes := func(at time.Time) bool {
		q := testQuery()
		q.SpillBudgets, q.SpillShare = s, 1
		got, _ := routing.ChooseRoute(q, v, at, r, nil)
		return got.IsSpilled()
	}
	pause := func() (d time.Duration) {
		for ; !goes(now.Add(d)); d += 10 * time.Millisecond {
			if d > time.Minute {
				t.Fatal("a pause never ends")
			}
		}
		return d
	}
	if !goes(now) {
		t.Fatal("it does not spill")
	}
	var last time.Duration
	for i := range 8 {
		s.RecordRefusal("ams", "m", now, r)
		d := pause()
		if d < 250*time.Millisecond || d > 12*time.Second || i == 4 && d < last {
			t.Errorf("refusal %d pauses for %v after %v", i+1, d, last)
		}
		last = d
	}
	s.RecordAcceptance("ams", "m")
	if !goes(now) {
		t.Error("one that accepts is left alone")
	}
	s.RecordRefusal("ams", "m", now, r)
	nothing := &routing.RoutingView{Peers: v.Peers}
	q := testQuery()
	q.SpillBudgets, q.SpillShare = s, 1
	if got, ok := routing.ChooseRoute(q, nothing, now, r, nil); !ok || !got.IsSpilled() || got.SpillCostLimit != 0 {
		t.Errorf("what nothing at home can serve is held to a pause: %+v", got)
	}
	s.RetainPeers(func(string) bool { return false })
	if !goes(now) {
		t.Error("what is not a peer any more is remembered")
	}
}

// Several peers that are as good share what is spilled by their headroom; the peer says how long it may take.
func TestSpillsSpreadOverEqualPeers(t *testing.T) {
	big := withChange(testModel("m", 0), func(m *capacity.ModelCapacity) { m.Headroom = [3]int64{15_000, 15_000, 15_000} })
	v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 50_000))}, Peers: []routing.PeerRegion{
		testPeer("ams", 10*time.Millisecond, testModel("m", 0)), testPeer("lhr", 12*time.Millisecond, big), testPeer("far", 300*time.Millisecond, big),
	}}
	count := map[string]int{}
	for seed := range uint64(4000) {
		q := testQuery()
		got, _ := routing.ChooseRoute(q, v, time.Unix(1, 0), rand.New(rand.NewPCG(seed, 9)), nil)
		count[got.Path.Region]++
		if want := 5.1 - 0.02 - 0.012; got.SpillCostLimit < want-0.01 || got.SpillCostLimit > want+0.01 {
			t.Fatalf("a peer may take %v s, want about %v", got.SpillCostLimit, want)
		}
	}
	if a, l := count["ams"], count["lhr"]; a < 850 || a > 1150 || a+l != 4000 {
		t.Errorf("headrooms of 5,000 and 15,000 took %v of 4000", count)
	}
}

// A request whose body waits for the peer's word pays for one round trip more: it goes only where that is worth it.
func TestExpectContinueCostsOneRoundTrip(t *testing.T) {
	const rtt = 90 * time.Millisecond
	for _, c := range []struct {
		asks  bool
		ahead int64 // at home: 1,000 is a tenth of a second
		goes  bool
	}{{false, 1000, false}, {false, 1200, true}, {true, 1200, false}, {true, 1900, false}, {true, 2100, true}} {
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", c.ahead))}, Peers: []routing.PeerRegion{testPeer("ams", rtt, testModel("m", 0))}}
		q := testQuery()
		q.ExpectContinue = c.asks
		home, _ := routing.ChooseRoute(q, &routing.RoutingView{Locals: v.Locals}, time.Unix(1, 0), newRNG(), nil)
		got, _ := routing.ChooseRoute(q, v, time.Unix(1, 0), newRNG(), nil)
		if got.IsSpilled() != c.goes {
			t.Errorf("%d tokens ahead, asked first %v: spilled %v", c.ahead, c.asks, got.IsSpilled())
			continue
		}
		if want := home.TTFTSeconds - q.Margin.Seconds() - rtt.Seconds(); c.goes && (got.SpillCostLimit < want-1e-9 || got.SpillCostLimit > want+1e-9) {
			t.Errorf("asked first %v: the peer may take %v s, want %v", c.asks, got.SpillCostLimit, want)
		}
	}
}

func TestRetryBudget_IsShareOfRequestsWithFloor(t *testing.T) {
	var b routing.RetryBudget
	now, taken := time.Unix(1000, 0), 0
	for range 1000 {
		if b.TakeRetry(now) {
			taken++
		}
	}
	if taken != 100 {
		t.Fatalf("a full budget gave %d, want 100", taken)
	}
	for range 40 {
		b.AddRequest(0.125)
	}
	for taken = 0; b.TakeRetry(now); taken++ {
	}
	if taken != 5 {
		t.Fatalf("40 requests earned %d, want 5", taken)
	}
	for taken = 0; b.TakeRetry(now.Add(time.Second)); taken++ {
	}
	if taken != 10 {
		t.Fatalf("a quiet second earned %d, want 10", taken)
	}
}
