package zone_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/regional/zone"
)

// crowded is a model whose queue is empty and whose workers have so many answers under way, of so many tokens in all.
func crowded(m capacity.Model, running, held int64) capacity.Model {
	m.Running, m.KVFree = running, m.KVTotal-held
	m.SlotsTotal, m.SlotsFree = 1000, 1000-running
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

// Answers that finish on workers that take no more are beside nobody; where a release states no slots, all count.
func TestWhatFinishesElsewhereIsBesideNobody(t *testing.T) {
	beside := func(m capacity.Model) float64 {
		v, _ := zone.Choose(query(), &zone.View{Locals: []zone.Local{local("a", m)}}, time.Time{}, rng(), nil)
		return v.Beside
	}
	m := crowded(model("m", 0), 5, 6000)
	idle, draining := beside(m), m
	draining.Running += 60
	if got := beside(draining); got != idle {
		t.Errorf("60 answers of a drained worker make it %v s, without them %v", got, idle)
	}
	old := draining
	old.SlotsTotal, old.SlotsFree = 0, 0
	if got := beside(old); !(got > idle) {
		t.Errorf("of a release that states no slots 65 answers make it %v s, 5 of another %v", got, idle)
	}
}

// TestBesideByHand: a request of 1,000 tokens and 100 of output at a worker that computes 10,000 and emits 1,000 a second, with 5
// answers under way that hold 6,000 tokens, stops each for 0.1 s, makes each of 100 steps of the 5 longer by what 1,050 tokens of
// context do, and bears their 6,000 itself. What this gateway has sent since is beside it just as much.
func TestBesideByHand(t *testing.T) {
	const step = 0.25 / 1000 / 1000 // seconds by which a token of context lengthens it
	want := 0.02 * (5*0.1 + 100*step*(5*1050+6000))
	var rec explain.Record
	v, _ := zone.Choose(query(), &zone.View{Locals: []zone.Local{local("a", crowded(model("m", 0), 5, 6000))}}, time.Time{}, rng(), &rec)
	if math.Abs(v.Beside-want) > 1e-12 {
		t.Errorf("they cost each other %v s, want %v", v.Beside, want)
	}
	if !slices.ContainsFunc(rec.Candidates, func(c explain.Candidate) bool {
		return slices.ContainsFunc(c.Terms, func(x explain.Term) bool { return x.Name == "decode" && x.Seconds == v.Beside })
	}) {
		t.Errorf("nothing is explained of it: %+v", rec.Candidates)
	}
	q := query()
	q.Ledger = zone.NewLedger()
	q.Ledger.Issue(v.Path, "m", 1000, 1500)
	sent, _ := zone.Choose(q, &zone.View{Locals: []zone.Local{local("a", crowded(model("m", 0), 4, 4500))}}, time.Time{}, rng(), nil)
	if math.Abs(sent.Beside-want) > 1e-12 {
		t.Errorf("with one of the five on its way %v s, want %v", sent.Beside, want)
	}
}

// Some answers more or fewer, as come and go while a statement is on its way, move no request to another region, however long answers
// are; and many choices are not many times the steps.
func TestAFewAnswersMoveNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := query()
		q.PromptTokens, q.MaxTokens = rapid.IntRange(1, 8000).Draw(t, "prompt"), rapid.IntRange(1, 30_000).Draw(t, "output")
		n := rapid.Int64Range(20, 200).Draw(t, "answers")
		here, there := crowded(model("m", 0), n, 900*n), crowded(model("m", 0), n-n/20, 900*(n-n/20))
		here.KVTotal, there.KVTotal, here.KVFree, there.KVFree = 4e6, 4e6, 4e6-900*n, 4e6-900*(n-n/20)
		v := &zone.View{Locals: []zone.Local{local("a", here)}, Peers: []zone.Peer{peer("ams", 20*time.Millisecond, there)}}
		if got, ok := zone.Choose(q, v, time.Time{}, rng(), nil); !ok || got.Spilled() {
			t.Fatalf("%d answers here, %d there: chose %+v", n, n-n/20, got)
		}
		one, _ := zone.Choose(q, &zone.View{Locals: v.Locals}, time.Time{}, rng(), nil)
		q.Choices = rapid.IntRange(2, 16).Draw(t, "choices")
		q.MaxTokens *= q.Choices
		all, _ := zone.Choose(q, &zone.View{Locals: v.Locals}, time.Time{}, rng(), nil)
		if all.Beside < one.Beside || all.Beside > float64(q.Choices)*one.Beside+1e-9 {
			t.Fatalf("%d choices cost %v s beside others, one %v", q.Choices, all.Beside, one.Beside)
		}
	})
}

// Of two peers at the same distance that would begin as soon, the one with fewer answers under way is chosen.
func TestPeersAreRankedByTheirCrowd(t *testing.T) {
	q := query()
	q.MaxTokens = 250
	v := &zone.View{Peers: []zone.Peer{
		peer("ams", 20*time.Millisecond, crowded(model("m", 0), 60, 90_000)), peer("lon", 20*time.Millisecond, crowded(model("m", 0), 5, 6000)),
	}}
	for range 20 {
		if got, ok := zone.Choose(q, v, time.Time{}, rng(), nil); !ok || got.Path.Region != "lon" {
			t.Fatalf("chose %+v", got)
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
		m.Hardware[0].DecodeRate = rapid.SampledFrom([]int64{0, 2000, 9000, 100_000}).Draw(t, "decode")
		m = crowded(m, rapid.Int64Range(1, 300).Draw(t, "running"), rapid.Int64Range(0, m.KVTotal/2).Draw(t, "held"))
		one := beside(q, m)
		for what, more := range map[string]capacity.Model{
			"answers": crowded(m, m.Running+1, m.KVTotal-m.KVFree),
			"tokens":  crowded(m, m.Running, m.KVTotal-m.KVFree+1000),
		} {
			if got := beside(q, more); !(got > one) && one < 60 {
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

// A peer is told what the request may cost there. One that is as it was believed to be lets it in, and one that has more under way
// than was believed does not.
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
			if left := here.Cost() - here.Beside/10 - there.Cost() - 2*rtt.Seconds() - q.Margin.Seconds(); left > 1e-9 {
				t.Fatalf("%v s sooner than at home, and not sent there: %+v", left, got)
			}
			return
		}
		want := max(here.Cost()-here.Beside/10-q.Margin.Seconds()-rtt.Seconds(), 0.001)
		if math.Abs(got.Within-want) > 1e-9 || there.Cost() > got.Within {
			t.Fatalf("it may cost %v s, want %v, and costs %v", got.Within, want, there.Cost())
		}
	})
}
