package routing_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

func routerStart() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func newTestRouter(p routing.Policy, now time.Time) *routing.Router {
	r := routing.NewRouter(routing.RouterConfig{Name: "fra-gw", Boot: 1, Rand: rand.New(rand.NewPCG(1, 0x9a7e))})
	p.Region = "fra"
	r.ApplyPolicy(p, now)
	r.Rebuild(now)
	return r
}

// zoneSummary is a summary of zone name with one worker of model "m": 10,000 tokens/s of prefill.
func zoneSummary(name string, seq uint64, ahead, headroom int64) *capacity.Summary {
	return &capacity.Summary{
		Path: capacity.Path{Region: "fra", Zone: name, Instance: "l1"}, Endpoint: "fra-" + name + ":1", Boot: 1, Seq: seq,
		Models: peerModels(ahead, headroom),
	}
}

func peerModels(ahead, headroom int64) []capacity.ModelCapacity {
	return []capacity.ModelCapacity{{
		Name: "m", Ready: 1, Total: 1, WorkAhead: [3]int64{ahead, ahead, ahead}, Headroom: [3]int64{headroom, headroom, headroom},
		Hardware: []capacity.HardwareRates{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}}, MaxContext: 100_000,
	}}
}

func newAmsterdamReport(age, rtt time.Duration, models []capacity.ModelCapacity) routing.PeerReport {
	return routing.PeerReport{
		Region: "ams", Gateways: []routing.PeerGateway{{Name: "ams-gw", Endpoint: "ams:1"}}, Age: age, RTT: rtt,
		Summary: &capacity.Summary{Path: capacity.Path{Region: "ams"}, Models: models},
	}
}

func newTwoZoneRouter(now time.Time) *routing.Router {
	r := newTestRouter(routing.Policy{}, now)
	for _, z := range []string{"a", "b"} {
		r.ReceiveSummary(zoneSummary(z, 1, 0, 9000), now)
	}
	r.Rebuild(now)
	return r
}

func sessionQuery() *routing.RouteQuery {
	return &routing.RouteQuery{Model: "m", PromptTokens: 5000, MaxTokens: 10, Session: 7}
}

// The child of a session is assumed to have its prompt cached until responses show that it is not. Engines that report
// no cached tokens leave the assumption in place.
func TestRouter_LearnsCacheRetentionFromResponses(t *testing.T) {
	now := routerStart()
	r := newTwoZoneRouter(now)
	turn := func(u openai.TokenUsage) int64 {
		var a routing.Attempt
		if r.Dispatch(sessionQuery(), &a, now) != routing.Dispatched {
			t.Fatal("no endpoint is eligible")
		}
		r.Finish(&a, u, true)
		return a.Decision.CachedTokens
	}
	if n := turn(openai.TokenUsage{Stated: true, Prompt: 5000, Completion: 10}); n != 0 {
		t.Errorf("%d tokens of a new session are expected in the cache", n)
	}
	for range 30 {
		if n := turn(openai.TokenUsage{Stated: true, Prompt: 5000, Completion: 10}); n != 5000 {
			t.Fatalf("with engines that report no cached tokens, %d of 5,000 tokens are expected in the cache", n)
		}
	}
	turn(openai.TokenUsage{Stated: true, Prompt: 5000, Completion: 10, Cached: 5000})
	for range 60 {
		turn(openai.TokenUsage{Stated: true, Prompt: 5000, Completion: 10})
	}
	if n := turn(openai.TokenUsage{}); n > 500 {
		t.Errorf("after 60 responses with nothing cached, %d of 5,000 tokens are expected in the cache", n)
	}
}

// A zone that refused an attempt has cached nothing, so the session's affinity stays with the zone that served it before.
func TestRouter_RefusedAttemptDoesNotMoveSessionAffinity(t *testing.T) {
	now := routerStart()
	r := newTwoZoneRouter(now)
	var first, a routing.Attempt
	if r.Dispatch(sessionQuery(), &first, now) != routing.Dispatched {
		t.Fatal("no endpoint is eligible")
	}
	r.Finish(&first, openai.TokenUsage{}, true)
	home := first.Decision.Path
	q := sessionQuery()
	if r.Dispatch(q, &a, now); a.Decision.Path != home {
		t.Fatalf("the session goes to %v and not to its zone %v", a.Decision.Path, home)
	}
	other := "a"
	if home.Zone == "a" {
		other = "b"
	}
	r.RecordServed(7, capacity.Path{Region: "fra", Zone: other, Instance: "l1"}, 5000) // as if an attempt there had begun
	r.Finish(&a, openai.TokenUsage{}, false)
	if o := r.Dispatch(q, &a, now); o != routing.Dispatched || a.Decision.Path != home || a.Decision.CachedTokens != 5000 {
		t.Errorf("refused elsewhere it goes to %v with %d tokens cached, want %v with all 5,000", a.Decision.Path, a.Decision.CachedTokens, home)
	}
}

// A spill stays in the ledger until the peer's summary, by its age in the directive, must include it. After that it would
// count twice.
func TestRouter_SpillsStayInLedgerUntilPeerSummaryCountsThem(t *testing.T) {
	start := routerStart()
	ams := capacity.Path{Region: "ams"}
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	policy := routing.Policy{MaxHeadroomAge: time.Hour, SpillShare: 1, Peers: []routing.PeerReport{newAmsterdamReport(500*time.Millisecond, 100*time.Millisecond, peerModels(0, 9000))}}
	r := newTestRouter(policy, start)
	receive := func(s float64) {
		policy.ReceivedAt = at(s)
		r.ApplyPolicy(policy, at(s))
	}
	spill := func(s float64) {
		t.Helper()
		var a routing.Attempt
		q := &routing.RouteQuery{Model: "m", PromptTokens: 10, MaxTokens: 10, Spill: true}
		if o := r.Dispatch(q, &a, at(s)); o != routing.Dispatched || !a.Decision.IsSpilled() {
			t.Fatalf("outcome %v, %+v: not spilled", o, a.Decision)
		}
	}
	wantRequests := func(s float64, want int64) {
		t.Helper()
		if got := r.UncreditedLoad(ams, "m").Requests; got != want {
			t.Errorf("at %v s the ledger counts %d requests at the peer, want %d", s, got, want)
		}
	}
	receive(0)
	spill(0.5)
	receive(1)
	wantRequests(1, 1)
	spill(1.5)
	receive(2)
	wantRequests(2, 2) // the summary is from 1.4 s at best, and requests take up to 1 s to show in it
	receive(3)
	wantRequests(3, 1) // it includes what was sent before 1 s
	receive(4)
	wantRequests(4, 0)
	for s := range 100 {
		receive(5 + float64(s))
	}
	if n, _ := r.CountTicketMarks("ams"); n > routing.MaxTicketMarks {
		t.Errorf("the peer has %d ticket marks, more than %d", n, routing.MaxTicketMarks)
	}
	spill(104.5)
	policy.Peers = nil
	receive(200)
	wantRequests(200, 0)
	if _, peers := r.CountTicketMarks(""); peers != 0 {
		t.Errorf("%d regions that are no longer peers have ticket marks", peers)
	}
}

// When the global tier is silent, a peer that was healthy by the last directive still receives spills for a while. A peer
// whose summary was already old then, or whose connections fail, does not; nor does one of a persisted directive.
func TestRouter_SpillsContinueWithoutTheGlobalTier(t *testing.T) {
	begun := routerStart()
	for name, c := range map[string]struct {
		age, silent time.Duration // age of the peer's summary in the directive, and the time since the directive
		suspect     time.Duration // time since a connection to it failed
		fromDisk    bool
		headroom    int64
		spills      bool
	}{
		"while it is reported":             {age: time.Second, silent: time.Second, headroom: 9000, spills: true},
		"once it is not reported":          {age: time.Second, silent: 3 * time.Second, headroom: 9000, spills: true},
		"a minute later":                   {age: time.Second, silent: time.Minute, headroom: 9000, spills: true},
		"not after eleven minutes":         {age: time.Second, silent: 11 * time.Minute, headroom: 9000},
		"not without headroom":             {age: time.Second, silent: time.Minute},
		"not with an old summary":          {age: 4 * time.Second, silent: 3 * time.Second, headroom: 9000},
		"not shortly after an old summary": {age: 2900 * time.Millisecond, silent: 200 * time.Millisecond, headroom: 9000},
		"not after a failed connection":    {age: time.Second, silent: time.Minute, headroom: 9000, suspect: 5 * time.Second},
		"when the suspicion is over":       {age: time.Second, silent: time.Minute, headroom: 9000, suspect: 31 * time.Second, spills: true},
		"not from disk":                    {age: time.Second, silent: time.Minute, headroom: 9000, fromDisk: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRouter(routing.Policy{
				ReceivedAt: begun, FromDisk: c.fromDisk, MaxHeadroomAge: 3 * time.Second, SpillShare: 0.5,
				Peers: []routing.PeerReport{newAmsterdamReport(c.age, 10*time.Millisecond, peerModels(0, c.headroom))},
			}, begun)
			now := begun.Add(c.silent)
			r.ReceiveSummary(zoneSummary("a", 1, 100_000, 0), now)
			if c.suspect > 0 {
				r.Rebuild(now.Add(-c.suspect))
				r.SuspectEndpoint("ams:1", now.Add(-c.suspect))
			}
			r.Rebuild(now)
			var a routing.Attempt
			q := &routing.RouteQuery{Model: "m", PromptTokens: 1000, MaxTokens: 10, Spill: true}
			if o := r.Dispatch(q, &a, now); o != routing.Dispatched || a.Decision.IsSpilled() != c.spills {
				t.Errorf("%v, %+v: spilled is %v, want %v", o, a.Decision, a.Decision.IsSpilled(), c.spills)
			}
		})
	}
}

// With a gradual drain, the remaining share of a zone or region follows the time.
func TestPolicy_DrainShareOverTime(t *testing.T) {
	start := routerStart()
	p := routing.Policy{Drains: []routing.PathDrain{
		{Path: "fra", Start: start, Over: time.Minute},
		{Path: "fra/a", Start: start, Over: 2 * time.Minute, Until: start.Add(3 * time.Minute)},
	}}
	for _, c := range []struct {
		after        time.Duration
		region, zone float64
	}{{0, 1, 1}, {30 * time.Second, 0.5, 0.75}, {time.Minute, 0, 0.5}, {2 * time.Minute, 0, 0}, {3 * time.Minute, 0, 1}} {
		now := start.Add(c.after)
		if r, z := p.DrainShare("fra", "", now), p.DrainShare("fra", "a", now); r != c.region || z != c.zone {
			t.Errorf("after %s: region %v, zone %v, want %v and %v", c.after, r, z, c.region, c.zone)
		}
		if p.IsDrained("fra", "", now) != (c.region == 0) || p.IsDrained("fra", "b", now) {
			t.Errorf("after %s the region counts as drained: %v", c.after, p.IsDrained("fra", "", now))
		}
	}
}

// An attempt is dispatched only if its first token is predicted within the target and the deadline. One that is not
// leaves no trace in the ledger.
func TestRouter_RefusesLateFirstTokens(t *testing.T) {
	now := routerStart()
	for name, c := range map[string]struct {
		query func(*routing.RouteQuery)
		want  routing.DispatchOutcome
	}{
		"no bound":        {func(*routing.RouteQuery) {}, routing.Dispatched},
		"in the target":   {func(q *routing.RouteQuery) { q.TTFTTarget = 1 }, routing.Dispatched},
		"past the target": {func(q *routing.RouteQuery) { q.TTFTTarget = 0.1 }, routing.MissesTarget},
		"in time":         {func(q *routing.RouteQuery) { q.Deadline = now.Add(time.Second) }, routing.Dispatched},
		"past deadline":   {func(q *routing.RouteQuery) { q.Deadline = now.Add(100 * time.Millisecond) }, routing.PastDeadline},
		"unknown model":   {func(q *routing.RouteQuery) { q.Model = "other" }, routing.NoEndpoint},
	} {
		r := newTwoZoneRouter(now)
		q := sessionQuery() // its prefill takes 0.5 s
		c.query(q)
		var a routing.Attempt
		if got := r.Dispatch(q, &a, now); got != c.want {
			t.Errorf("%s: outcome %v, want %v", name, got, c.want)
		}
		if c.want != routing.Dispatched && (r.LastTicket() != 0 || r.CountEndpoints() != 0 || r.Finish(&a, openai.TokenUsage{}, true)) {
			t.Errorf("%s: an attempt was begun", name)
		}
	}
}

type silentOwner struct{ at time.Time }

func (o *silentOwner) LastByteAt() time.Time { return o.at }

// Attempts at an unreachable endpoint are cancelled: those without a first byte if another endpoint can serve them and a
// retry is left, streams once they are silent.
func TestRouter_SweepCancelsAttemptsAtUnreachableEndpoints(t *testing.T) {
	now := routerStart()
	r := newTwoZoneRouter(now)
	attempts := map[string]*routing.Attempt{}
	var home capacity.Path
	for name, a := range map[string]*routing.Attempt{
		"waiting":         {MayRetry: true, Owner: &silentOwner{}},
		"without a retry": {Owner: &silentOwner{}},
		"silent stream":   {MayRetry: true, Owner: &silentOwner{at: now}},
		"running stream":  {MayRetry: true, Owner: &silentOwner{at: now.Add(routing.MaxStreamSilence)}},
	} {
		if r.Dispatch(sessionQuery(), a, now) != routing.Dispatched {
			t.Fatal("no endpoint is eligible")
		}
		attempts[name], home = a, a.Decision.Path
	}
	sweep := func(after time.Duration) map[*routing.Attempt]bool {
		at := now.Add(after)
		other := "a"
		if home.Zone == "a" {
			other = "b"
		}
		s := zoneSummary(other, uint64(2+after), 0, 9000)
		r.ReceiveSummary(s, at)
		r.MarkUnreachable(home)
		r.Rebuild(at)
		found := map[*routing.Attempt]bool{}
		for _, a := range r.SweepUnreachable(at) {
			found[a] = true
		}
		return found
	}
	if found := sweep(0); len(found) != 0 {
		t.Errorf("%d attempts are cancelled at once, want none within the grace period", len(found))
	}
	// The last byte of any attempt counts for the endpoint, so waiting attempts are given time after the running stream.
	if found := sweep(routing.MaxStreamSilence + time.Millisecond); len(found) != 1 || !found[attempts["silent stream"]] {
		t.Errorf("%d attempts are cancelled, want only the silent stream", len(found))
	}
	if found := sweep(routing.MaxStreamSilence + routing.UnreachableGrace); len(found) != 1 || !found[attempts["waiting"]] || !attempts["waiting"].RetryTaken {
		t.Errorf("%d attempts are cancelled, want only the waiting one, with its retry taken", len(found))
	}
	if found := sweep(2 * time.Minute); len(found) != 2 {
		t.Errorf("%d attempts are cancelled after two minutes, want the other two", len(found))
	}
	for _, a := range attempts {
		if !r.Finish(a, openai.TokenUsage{}, false) || r.Finish(a, openai.TokenUsage{}, false) {
			t.Error("an attempt does not end exactly once")
		}
	}
	if n := r.CountEndpoints(); n != 0 {
		t.Errorf("%d endpoints have attempts in flight, want none", n)
	}
}

// Attempts dispatched after CancelAll begin cancelled.
func TestRouter_CancelAllCoversLaterAttempts(t *testing.T) {
	now := routerStart()
	r := newTwoZoneRouter(now)
	var before, after routing.Attempt
	r.Dispatch(sessionQuery(), &before, now)
	if all := r.CancelAll(); len(all) != 1 || all[0] != &before || !before.Cancelled {
		t.Errorf("%d attempts are cancelled, want the one in flight", len(all))
	}
	if r.Dispatch(sessionQuery(), &after, now); !after.Cancelled {
		t.Error("a later attempt is not cancelled")
	}
}
