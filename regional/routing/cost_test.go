package routing_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/regional/routing"
	"pgregory.net/rapid"
)

// withRunningAnswers returns a model with an empty queue, running responses in progress and held tokens of KV cache in use.
func withRunningAnswers(m capacity.ModelCapacity, running, held int64) capacity.ModelCapacity {
	m.Running, m.KVFree = running, m.KVTotal-held
	m.SlotsTotal, m.SlotsFree = 1000, 1000-running
	return m
}

// A zone with an empty queue and many responses in progress is not preferred to one with few.
func TestRunningAnswersRaiseCost(t *testing.T) {
	full, free := withRunningAnswers(testModel("m", 0), 60, 90_000), withRunningAnswers(testModel("m", 0), 5, 6000)
	q := testQuery()
	q.MaxTokens = 250
	v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", full), testLocal("b", free)}}
	if got, ok := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil); !ok || got.Endpoint != "b:1" {
		t.Errorf("with 60 responses in progress at a: chose %+v", got)
	}
	for _, tc := range []struct {
		rtt   time.Duration
		spill bool
	}{{20 * time.Millisecond, true}, {5 * time.Second, false}} {
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", full)}, Peers: []routing.PeerRegion{testPeer("ams", tc.rtt, free)}}
		got, ok := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil)
		if !ok || got.IsSpilled() != tc.spill {
			t.Errorf("a peer with 5 answers %v away: chose %+v", tc.rtt, got)
		}
	}
}

// Responses on draining workers do not slow new requests down. A release that reports no slots has all of them counted.
func TestAnswersOnDrainingWorkersDoNotInterfere(t *testing.T) {
	interferenceOf := func(m capacity.ModelCapacity) float64 {
		v, _ := routing.ChooseRoute(testQuery(), &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", m)}}, time.Time{}, newRNG(), nil)
		return v.Interference
	}
	m := withRunningAnswers(testModel("m", 0), 5, 6000)
	idle, draining := interferenceOf(m), m
	draining.Running += 60
	if got := interferenceOf(draining); got != idle {
		t.Errorf("60 answers of a drained worker make it %v s, without them %v", got, idle)
	}
	old := draining
	old.SlotsTotal, old.SlotsFree = 0, 0
	if got := interferenceOf(old); !(got > idle) {
		t.Errorf("of a release that states no slots 65 answers make it %v s, 5 of another %v", got, idle)
	}
}

// TestInterferenceMatchesHandComputation: a request of 1,000 tokens and 100 of output at a worker that computes 10,000 and emits 1,000 a second, with 5
// responses in progress that hold 6,000 tokens, pauses each for 0.1 s and makes each of 100 steps of the 5 longer by what 1,050
// tokens of context add. Their 6,000 tokens slow the request itself. A request sent since the last summary counts the same.
func TestInterferenceMatchesHandComputation(t *testing.T) {
	const step = 0.25 / 1000 / 1000 // seconds by which a token of context lengthens it
	want := 0.02 * (5*0.1 + 100*step*(5*1050+6000))
	var rec explain.Explanation
	v, _ := routing.ChooseRoute(testQuery(), &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withRunningAnswers(testModel("m", 0), 5, 6000))}}, time.Time{}, newRNG(), &rec)
	if math.Abs(v.Interference-want) > 1e-12 {
		t.Errorf("interference %v s, want %v", v.Interference, want)
	}
	if !slices.ContainsFunc(rec.Candidates, func(c explain.Candidate) bool {
		return slices.ContainsFunc(c.Terms, func(x explain.CostTerm) bool { return x.Name == "decode" && x.Seconds == v.Interference })
	}) {
		t.Errorf("the explanation has no such term: %+v", rec.Candidates)
	}
	q := testQuery()
	q.Ledger = routing.NewLedger()
	q.Ledger.IssueTicket(v.Path, "m", 1000, 1500)
	sent, _ := routing.ChooseRoute(q, &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", withRunningAnswers(testModel("m", 0), 4, 4500))}}, time.Time{}, newRNG(), nil)
	if math.Abs(sent.Interference-want) > 1e-12 {
		t.Errorf("with one of the five sent since the summary %v s, want %v", sent.Interference, want)
	}
}

// A difference of a few responses, as arises within the age of a summary, causes no spill, however long responses are. n choices cost
// at most n times one.
func TestFewAnswersDoNotCauseSpill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := testQuery()
		q.PromptTokens, q.MaxTokens = rapid.IntRange(1, 8000).Draw(t, "prompt"), rapid.IntRange(1, 30_000).Draw(t, "output")
		n := rapid.Int64Range(20, 200).Draw(t, "answers")
		here, there := withRunningAnswers(testModel("m", 0), n, 900*n), withRunningAnswers(testModel("m", 0), n-n/20, 900*(n-n/20))
		here.KVTotal, there.KVTotal, here.KVFree, there.KVFree = 4e6, 4e6, 4e6-900*n, 4e6-900*(n-n/20)
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", here)}, Peers: []routing.PeerRegion{testPeer("ams", 20*time.Millisecond, there)}}
		if got, ok := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil); !ok || got.IsSpilled() {
			t.Fatalf("%d answers here, %d there: chose %+v", n, n-n/20, got)
		}
		one, _ := routing.ChooseRoute(q, &routing.RoutingView{Locals: v.Locals}, time.Time{}, newRNG(), nil)
		q.Choices = rapid.IntRange(2, 16).Draw(t, "choices")
		q.MaxTokens *= q.Choices
		all, _ := routing.ChooseRoute(q, &routing.RoutingView{Locals: v.Locals}, time.Time{}, newRNG(), nil)
		if all.Interference < one.Interference || all.Interference > float64(q.Choices)*one.Interference+1e-9 {
			t.Fatalf("interference of %d choices %v s, of one %v", q.Choices, all.Interference, one.Interference)
		}
	})
}

// Of two peers with equal round trip and wait, the one with fewer responses in progress is chosen.
func TestPeersAreRankedByRunningAnswers(t *testing.T) {
	q := testQuery()
	q.MaxTokens = 250
	v := &routing.RoutingView{Peers: []routing.PeerRegion{
		testPeer("ams", 20*time.Millisecond, withRunningAnswers(testModel("m", 0), 60, 90_000)), testPeer("lon", 20*time.Millisecond, withRunningAnswers(testModel("m", 0), 5, 6000)),
	}}
	for range 20 {
		if got, ok := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil); !ok || got.Path.Region != "lon" {
			t.Fatalf("chose %+v", got)
		}
	}
}

// Requests that this gateway sent since a zone's last summary count as interference.
func TestUnreportedRequestsInterfere(t *testing.T) {
	v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 0))}}
	q := testQuery()
	q.Ledger = routing.NewLedger()
	alone, _ := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil)
	n := q.Ledger.IssueTicket(alone.Path, "m", 1000, 1100)
	two, _ := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil)
	if alone.Interference != 0 || !(two.Interference > 0) {
		t.Errorf("alone %v s, after one that was just sent %v s", alone.Interference, two.Interference)
	}
	q.Ledger.FinishTicket(alone.Path, n)
	if again, _ := routing.ChooseRoute(q, v, time.Time{}, newRNG(), nil); again != alone {
		t.Errorf("after it finished: %+v, want %+v", again, alone)
	}
}

func TestInterferenceFollowsRunningAnswers(t *testing.T) {
	interferenceOf := func(q *routing.RouteQuery, m capacity.ModelCapacity) float64 {
		v, ok := routing.ChooseRoute(q, &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", m)}}, time.Time{}, newRNG(), nil)
		if !ok || !(v.Interference >= 0) || math.IsInf(v.Interference, 0) {
			panic(v.Interference)
		}
		return v.Interference
	}
	rapid.Check(t, func(t *rapid.T) {
		q, m := testQuery(), testModel("m", 0)
		q.PromptTokens, q.MaxTokens = rapid.IntRange(1, 20_000).Draw(t, "prompt"), rapid.IntRange(1, 4000).Draw(t, "output")
		m.Ready = rapid.Int64Range(1, 9).Draw(t, "ready")
		m.Hardware[0].DecodeRate = rapid.SampledFrom([]int64{0, 2000, 9000, 100_000}).Draw(t, "decode")
		m = withRunningAnswers(m, rapid.Int64Range(1, 300).Draw(t, "running"), rapid.Int64Range(0, m.KVTotal/2).Draw(t, "held"))
		one := interferenceOf(q, m)
		for what, more := range map[string]capacity.ModelCapacity{
			"answers": withRunningAnswers(m, m.Running+1, m.KVTotal-m.KVFree),
			"tokens":  withRunningAnswers(m, m.Running, m.KVTotal-m.KVFree+1000),
		} {
			if got := interferenceOf(q, more); !(got > one) && one < 60 {
				t.Fatalf("with more %s %v s, with fewer %v", what, got, one)
			}
		}
		s := capacity.Summary{Models: []*capacity.ModelCapacity{&m}}
		twice := *capacity.MergeSummaries(s, s).Models[0]
		if got := interferenceOf(q, twice); math.Abs(got-one) > 1e-9*one {
			t.Fatalf("twice the workers with twice the answers: %v s, one half %v", got, one)
		}
	})
}

// A spill carries the highest cost at which the peer may admit it. A peer in the state of its last summary admits the spill. A peer with
// more load does not.
func TestSpillCostLimitLetsPeerDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := func(name string) capacity.ModelCapacity {
			return withRunningAnswers(testModel("m", rapid.Int64Range(0, 20_000).Draw(t, name+" ahead")),
				rapid.Int64Range(0, 200).Draw(t, name+" running"), rapid.Int64Range(0, 300_000).Draw(t, name+" held"))
		}
		home, away, q := testLocal("a", load("home")), load("peer"), testQuery()
		rtt := time.Duration(rapid.IntRange(1, 300).Draw(t, "rtt")) * time.Millisecond
		q.ExpectContinue = rapid.Bool().Draw(t, "asks")
		at := func(l ...routing.LocalInstance) routing.RouteDecision {
			v, _ := routing.ChooseRoute(q, &routing.RoutingView{Locals: l}, time.Time{}, newRNG(), nil)
			return v
		}
		here, there := at(home), at(testLocal("b", away))
		got, ok := routing.ChooseRoute(q, &routing.RoutingView{Locals: []routing.LocalInstance{home}, Peers: []routing.PeerRegion{testPeer("ams", rtt, away)}}, time.Time{}, newRNG(), nil)
		if !ok || got.Reason != routing.ReasonPeerSooner {
			if left := here.TotalSeconds() - here.Interference/10 - there.TotalSeconds() - 2*rtt.Seconds() - q.Margin.Seconds(); left > 1e-9 {
				t.Fatalf("%v s sooner than at home, and not sent there: %+v", left, got)
			}
			return
		}
		want := max(here.TotalSeconds()-here.Interference/10-q.Margin.Seconds()-rtt.Seconds(), 0.001)
		if math.Abs(got.SpillCostLimit-want) > 1e-9 || there.TotalSeconds() > got.SpillCostLimit {
			t.Fatalf("it may cost %v s, want %v, and costs %v", got.SpillCostLimit, want, there.TotalSeconds())
		}
	})
}
