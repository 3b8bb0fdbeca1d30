package zone_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/zone"
)

// crowded is a model whose queue is empty and whose workers have so many answers under way, of so many tokens in all.
func crowded(m capacity.Model, running, held int64) capacity.Model {
	m.Running, m.KVFree = running, m.KVTotal-held
	return m
}

// A zone without a queue, whose many answers go on slowly, is no better than one with few.
func TestAnswersUnderWayCount(t *testing.T) {
	full, free := crowded(model("m", 0), 60, 90_000), crowded(model("m", 0), 5, 6000)
	q := query()
	q.MaxTokens = 250
	v := &zone.View{Locals: []zone.Local{local("a", full), local("b", free)}}
	if got, ok := zone.Choose(q, v, time.Time{}, rng(), nil); !ok || got.Endpoint != "b:1" {
		t.Errorf("beside 60 answers: chose %+v", got)
	}
	for _, tc := range []struct {
		rtt   time.Duration
		spill bool
	}{{20 * time.Millisecond, true}, {5 * time.Second, false}} {
		v := &zone.View{Locals: []zone.Local{local("a", full)}, Peers: []zone.Peer{peer("ams", tc.rtt, free)}}
		got, ok := zone.Choose(q, v, time.Time{}, rng(), nil)
		if !ok || got.Spilled() != tc.spill {
			t.Errorf("a peer with 5 answers %v away: chose %+v", tc.rtt, got)
		}
	}
}

// What this gateway has sent since a zone's last word is beside the next request as well.
func TestWhatWasSentIsBeside(t *testing.T) {
	v := &zone.View{Locals: []zone.Local{local("a", model("m", 0))}}
	q := query()
	q.Ledger = zone.NewLedger()
	alone, _ := zone.Choose(q, v, time.Time{}, rng(), nil)
	n := q.Ledger.Issue(alone.Path, "m", 1000, 1100)
	two, _ := zone.Choose(q, v, time.Time{}, rng(), nil)
	if alone.Beside != 0 || !(two.Beside > 0) {
		t.Errorf("alone %v s, beside one that was just sent %v s", alone.Beside, two.Beside)
	}
	q.Ledger.Finish(alone.Path, n)
	if again, _ := zone.Choose(q, v, time.Time{}, rng(), nil); again != alone {
		t.Errorf("when that is over: %+v, want %+v", again, alone)
	}
}

func TestBesideFollowsTheCrowd(t *testing.T) {
	beside := func(q *zone.Query, m capacity.Model) float64 {
		v, ok := zone.Choose(q, &zone.View{Locals: []zone.Local{local("a", m)}}, time.Time{}, rng(), nil)
		if !ok || !(v.Beside >= 0) || math.IsInf(v.Beside, 0) {
			panic(v.Beside)
		}
		return v.Beside
	}
	rapid.Check(t, func(t *rapid.T) {
		q, m := query(), model("m", 0)
		q.PromptTokens, q.MaxTokens = rapid.IntRange(1, 20_000).Draw(t, "prompt"), rapid.IntRange(1, 4000).Draw(t, "output")
		m.Ready = rapid.Int64Range(1, 9).Draw(t, "ready")
		m.Hardware[0].DecodeRate = rapid.Int64Range(0, 100_000).Draw(t, "decode")
		m = crowded(m, rapid.Int64Range(1, 300).Draw(t, "running"), rapid.Int64Range(0, m.KVTotal/2).Draw(t, "held"))
		one := beside(q, m)
		for what, more := range map[string]capacity.Model{
			"answers": crowded(m, m.Running+1, m.KVTotal-m.KVFree),
			"tokens":  crowded(m, m.Running, m.KVTotal-m.KVFree+1000),
		} {
			if got := beside(q, more); !(got > one) {
				t.Fatalf("with more %s %v s, with fewer %v", what, got, one)
			}
		}
		s := capacity.Summary{Models: []capacity.Model{m}}
		twice := capacity.Merge(s, s).Models[0]
		if got := beside(q, twice); math.Abs(got-one) > 1e-9*one {
			t.Fatalf("twice the workers with twice the answers: %v s, one half %v", got, one)
		}
	})
}

// A peer is told how long it may take to the first token, which is what it goes by: what its answers under way cost is taken out. One
// that is as it was believed to be lets the request in.
func TestAPeerMayTakeWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := func(name string) capacity.Model {
			return crowded(model("m", rapid.Int64Range(0, 20_000).Draw(t, name+" ahead")),
				rapid.Int64Range(0, 200).Draw(t, name+" running"), rapid.Int64Range(0, 300_000).Draw(t, name+" held"))
		}
		home, away, q := local("a", load("home")), load("peer"), query()
		rtt := time.Duration(rapid.IntRange(1, 300).Draw(t, "rtt")) * time.Millisecond
		q.Asks = rapid.Bool().Draw(t, "asks")
		at := func(l ...zone.Local) zone.Verdict {
			v, _ := zone.Choose(q, &zone.View{Locals: l}, time.Time{}, rng(), nil)
			return v
		}
		here, there := at(home), at(local("b", away))
		got, ok := zone.Choose(q, &zone.View{Locals: []zone.Local{home}, Peers: []zone.Peer{peer("ams", rtt, away)}}, time.Time{}, rng(), nil)
		if !ok || got.Reason != zone.ReasonPeerSooner {
			if left := here.Seconds + here.Beside - there.Seconds - there.Beside - 2*rtt.Seconds() - q.Margin.Seconds(); left > 0 {
				t.Fatalf("%v s sooner than at home, and not sent there: %+v", left, got)
			}
			return
		}
		want := max(here.Seconds+here.Beside-q.Margin.Seconds()-rtt.Seconds()-there.Beside, 0.001)
		if math.Abs(got.Within-want) > 1e-9 || there.Seconds > got.Within {
			t.Fatalf("it may take %v s, want %v, and takes %v", got.Within, want, there.Seconds)
		}
	})
}
