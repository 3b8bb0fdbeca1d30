package zone_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/zone"
)

// However requests come, what several gateways of a region spill into a peer by choice in any second is no more than the
// region's share of its headroom, and one request each.
func TestSpillsKeepTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gateways := rapid.IntRange(1, 3).Draw(t, "gateways")
		v := &zone.View{Locals: []zone.Local{local("a", model("m", 50_000))}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, model("m", 0))}}
		const share, headroom = 0.5, 5000.0 // of model
		var spills []*zone.Spills
		for range gateways {
			spills = append(spills, zone.NewSpills())
		}
		now, r := time.Unix(1000, 0), rng()
		type spill struct {
			at     time.Time
			tokens int
		}
		var sent []spill
		longest := 0
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			q := query()
			q.PromptTokens = rapid.IntRange(1, 4000).Draw(t, "tokens")
			longest = max(longest, q.PromptTokens)
			q.Spills, q.SpillShare = spills[rapid.IntRange(0, gateways-1).Draw(t, "gateway")], share/float64(gateways)
			got, ok := zone.Choose(q, v, now, r, nil)
			if !ok {
				t.Fatal("no verdict")
			}
			if !got.Spilled() {
				if got.Held != zone.HeldBudget || got.HeldBy != "ams" {
					t.Fatalf("it stays because of %q of %q", got.Held, got.HeldBy)
				}
				continue
			}
			q.Spills.Take(got.Path.Region, q.Model, q.PromptTokens, got.Rate, now)
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

func TestARefusalPausesAndAnAcceptanceEndsIt(t *testing.T) {
	v := &zone.View{Locals: []zone.Local{local("a", model("m", 50_000))}, Peers: []zone.Peer{peer("ams", 10*time.Millisecond, model("m", 0))}}
	s, now, r := zone.NewSpills(), time.Unix(1000, 0), rng()
	goes := func(at time.Time) bool {
		q := query()
		q.Spills, q.SpillShare = s, 1
		got, _ := zone.Choose(q, v, at, r, nil)
		return got.Spilled()
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
		s.Refused("ams", "m", now, r)
		d := pause()
		if d < 250*time.Millisecond || d > 12*time.Second || i == 4 && d < last {
			t.Errorf("refusal %d pauses for %v after %v", i+1, d, last)
		}
		last = d
	}
	s.Accepted("ams", "m")
	if !goes(now) {
		t.Error("one that accepts is left alone")
	}
	s.Refused("ams", "m", now, r)
	nothing := &zone.View{Peers: v.Peers}
	q := query()
	q.Spills, q.SpillShare = s, 1
	if got, ok := zone.Choose(q, nothing, now, r, nil); !ok || !got.Spilled() || got.Within != 0 {
		t.Errorf("what nothing at home can serve is held to a pause: %+v", got)
	}
	s.Retain(func(string) bool { return false })
	if !goes(now) {
		t.Error("what is not a peer any more is remembered")
	}
}

// Several peers that are as good share what is spilled by their headroom; the peer says how long it may take.
func TestSpillsSpreadOverEqualPeers(t *testing.T) {
	big := with(model("m", 0), func(m *capacity.Model) { m.Headroom = [3]int64{15_000, 15_000, 15_000} })
	v := &zone.View{Locals: []zone.Local{local("a", model("m", 50_000))}, Peers: []zone.Peer{
		peer("ams", 10*time.Millisecond, model("m", 0)), peer("lhr", 12*time.Millisecond, big), peer("far", 300*time.Millisecond, big),
	}}
	count := map[string]int{}
	for seed := range uint64(4000) {
		q := query()
		got, _ := zone.Choose(q, v, time.Unix(1, 0), rand.New(rand.NewPCG(seed, 9)), nil)
		count[got.Path.Region]++
		if want := 5.1 - 0.02 - 0.012; got.Within < want-0.01 || got.Within > want+0.01 {
			t.Fatalf("a peer may take %v s, want about %v", got.Within, want)
		}
	}
	if a, l := count["ams"], count["lhr"]; a < 850 || a > 1150 || a+l != 4000 {
		t.Errorf("headrooms of 5,000 and 15,000 took %v of 4000", count)
	}
}

// A request whose body waits for the peer's word pays for one round trip more: it goes only where that is worth it.
func TestBeingAskedFirstIsARoundTripMore(t *testing.T) {
	const rtt = 90 * time.Millisecond
	for _, c := range []struct {
		asks  bool
		ahead int64 // at home: 1,000 is a tenth of a second
		goes  bool
	}{{false, 1000, false}, {false, 1200, true}, {true, 1200, false}, {true, 1900, false}, {true, 2100, true}} {
		v := &zone.View{Locals: []zone.Local{local("a", model("m", c.ahead))}, Peers: []zone.Peer{peer("ams", rtt, model("m", 0))}}
		q := query()
		q.Asks = c.asks
		home, _ := zone.Choose(q, &zone.View{Locals: v.Locals}, time.Unix(1, 0), rng(), nil)
		got, _ := zone.Choose(q, v, time.Unix(1, 0), rng(), nil)
		if got.Spilled() != c.goes {
			t.Errorf("%d tokens ahead, asked first %v: spilled %v", c.ahead, c.asks, got.Spilled())
			continue
		}
		if want := home.Seconds - q.Margin.Seconds() - rtt.Seconds(); c.goes && (got.Within < want-1e-9 || got.Within > want+1e-9) {
			t.Errorf("asked first %v: the peer may take %v s, want %v", c.asks, got.Within, want)
		}
	}
}
