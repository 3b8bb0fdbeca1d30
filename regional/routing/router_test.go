package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
	"pgregory.net/rapid"
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

func peerModels(ahead, headroom int64) []*capacity.ModelCapacity {
	return []*capacity.ModelCapacity{{
		Name: "m", Ready: 1, Total: 1, WorkAhead: [3]int64{ahead, ahead, ahead}, Headroom: [3]int64{headroom, headroom, headroom},
		Hardware: []capacity.HardwareRates{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}}, MaxContext: 100_000,
	}}
}

func newAmsterdamReport(age, rtt time.Duration, models []*capacity.ModelCapacity) routing.PeerReport {
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

// routerModel drives a router at random and holds what it must agree with.
type routerModel struct {
	t      *rapid.T
	r      *routing.Router
	now    time.Time
	policy routing.Policy
	seq    uint64
	open   []*modelAttempt
	peers  map[string]bool // regions of the policy in force
}

type modelAttempt struct {
	routing.Attempt
	query routing.RouteQuery
}

func (m *routerModel) listPaths() []capacity.Path {
	out := []capacity.Path{{Region: "ams"}, {Region: "iad"}}
	for _, z := range []string{"a", "b", "c"} {
		out = append(out, capacity.Path{Region: "fra", Zone: z, Instance: "l1"})
	}
	return out
}

func (m *routerModel) dispatchRequest() {
	q := routing.RouteQuery{
		Model: rapid.SampledFrom([]string{"m", "m", "m", "none"}).Draw(m.t, "model"), PromptTokens: rapid.IntRange(1, 20_000).Draw(m.t, "prompt"),
		MaxTokens: rapid.IntRange(0, 2000).Draw(m.t, "output"), Spill: rapid.Bool().Draw(m.t, "spill"), Session: rapid.Uint64Range(0, 3).Draw(m.t, "session"),
		RetryCredit: rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(m.t, "credit"),
	}
	if rapid.Bool().Draw(m.t, "bounded") {
		q.TTFTTarget = rapid.Float64Range(0.001, 2).Draw(m.t, "target")
		q.Deadline = m.now.Add(time.Duration(rapid.IntRange(-10, 2000).Draw(m.t, "deadline")) * time.Millisecond)
	}
	a := &modelAttempt{query: q}
	a.MayRetry = rapid.Bool().Draw(m.t, "may retry")
	before := m.r.LastTicket()
	if m.r.Dispatch(&a.query, &a.Attempt, m.now) != routing.Dispatched {
		if m.r.LastTicket() != before || m.r.Finish(&a.Attempt, openai.TokenUsage{}, true) {
			m.t.Fatal("an attempt was begun that was not dispatched")
		}
		return
	}
	if a.Ticket != before+1 {
		m.t.Fatalf("ticket %d follows %d", a.Ticket, before)
	}
	m.open = append(m.open, a)
}

func (m *routerModel) pickOpen() (int, *modelAttempt) {
	if len(m.open) == 0 {
		return 0, nil
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(m.t, "attempt")
	return i, m.open[i]
}

func (m *routerModel) finishAttempt() {
	i, a := m.pickOpen()
	if a == nil {
		return
	}
	u := openai.TokenUsage{Stated: rapid.Bool().Draw(m.t, "stated"), Cached: rapid.IntRange(0, 30_000).Draw(m.t, "cached")}
	if !m.r.Finish(&a.Attempt, u, rapid.Bool().Draw(m.t, "complete")) {
		m.t.Fatal("an attempt in flight cannot be finished")
	}
	if m.r.Finish(&a.Attempt, u, true) {
		m.t.Fatal("an attempt ends twice")
	}
	m.r.RecordFirstByte(&a.Attempt) // a late first byte changes nothing
	m.open = append(m.open[:i], m.open[i+1:]...)
}

func (m *routerModel) receiveSummary() {
	m.seq++
	ahead, headroom := rapid.Int64Range(0, 50_000).Draw(m.t, "ahead"), rapid.Int64Range(0, 9000).Draw(m.t, "headroom")
	s := zoneSummary(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "zone"), m.seq, ahead, headroom)
	ack := rapid.Uint64Range(0, m.r.LastTicket()).Draw(m.t, "ack")
	s.Acks = []capacity.LedgerAck{{Parent: "fra-gw", Boot: rapid.SampledFrom([]uint64{1, 2}).Draw(m.t, "boot"), Ticket: ack}}
	m.r.ReceiveSummary(s, m.now)
}

func (m *routerModel) applyPolicy() {
	m.policy.ReceivedAt, m.policy.Peers, m.peers = m.now, nil, map[string]bool{}
	for _, region := range []string{"ams", "iad"} {
		if !rapid.Bool().Draw(m.t, region) {
			continue
		}
		p := newAmsterdamReport(time.Duration(rapid.IntRange(0, 5000).Draw(m.t, "age"))*time.Millisecond, 20*time.Millisecond, peerModels(0, rapid.Int64Range(0, 9000).Draw(m.t, "peer headroom")))
		p.Region, p.Gateways = region, []routing.PeerGateway{{Name: region + "-gw", Endpoint: region + ":1"}}
		m.policy.Peers, m.peers[region] = append(m.policy.Peers, p), true
	}
	m.r.ApplyPolicy(m.policy, m.now)
}

// checkInvariants checks what holds after every step.
func (m *routerModel) checkInvariants() {
	tracked := map[*routing.Attempt]bool{}
	for _, a := range m.r.OpenAttempts() {
		tracked[a] = true
	}
	if len(tracked) != len(m.open) {
		m.t.Fatalf("%d attempts are in flight, want %d", len(tracked), len(m.open))
	}
	most := map[string]routing.SentLoad{}
	for _, a := range m.open {
		if !tracked[&a.Attempt] {
			m.t.Fatalf("attempt %d is not in flight", a.Ticket)
		}
		key := fmt.Sprint(a.Decision.Path, a.query.Model)
		l := most[key]
		l.Tokens += int64(a.query.PromptTokens)
		l.KV += int64(a.query.PromptTokens + a.query.MaxTokens)
		l.Requests++
		most[key] = l
	}
	for _, p := range m.listPaths() {
		got, most := m.r.UncreditedLoad(p, "m"), most[fmt.Sprint(p, "m")]
		if got.Tokens < 0 || got.KV < 0 || got.Requests < 0 {
			m.t.Fatalf("the ledger of %v is negative: %+v", p, got)
		}
		if got.Tokens > most.Tokens || got.KV > most.KV || got.Requests > most.Requests {
			m.t.Fatalf("the ledger of %v is %+v, more than the attempts in flight there: %+v", p, got, most)
		}
	}
	if spent := m.r.RetriesSpent(); spent < 0 || spent > routing.MaxSavedRetries {
		m.t.Fatalf("%v retries are spent, outside 0 to %v", spent, routing.MaxSavedRetries)
	}
	for region := range m.peers {
		if tokens, rate := m.r.SpillTokens(region, "m"); tokens > rate || tokens < -max(rate, 20_000) {
			m.t.Fatalf("the spill budget of %s holds %v tokens at %v tokens/s", region, tokens, rate)
		}
	}
}

// For any course of events the in-flight ledger is never negative and never counts more than the attempts in flight, an
// attempt that was dispatched ends exactly once, and the budgets stay within their bounds.
func TestRouter_LedgerAndBudgetsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &routerModel{
			t: t, now: routerStart(), peers: map[string]bool{}, policy: routing.Policy{Region: "fra", MaxHeadroomAge: 3 * time.Second, SpillShare: 0.5},
			r: routing.NewRouter(routing.RouterConfig{Name: "fra-gw", Boot: 1, Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}),
		}
		m.applyPolicy()
		steps := map[string]func(*rapid.T){
			"dispatch": func(*rapid.T) { m.dispatchRequest() },
			"finish":   func(*rapid.T) { m.finishAttempt() },
			"summary":  func(*rapid.T) { m.receiveSummary() },
			"policy":   func(*rapid.T) { m.applyPolicy() },
			"retry":    func(*rapid.T) { m.r.TakeRetry(m.now) },
			"resume":   func(*rapid.T) { m.r.TakeResume(m.now, len(m.open)) },
			"rebuild": func(*rapid.T) {
				m.r.Rebuild(m.now)
				m.r.SweepUnreachable(m.now)
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "milliseconds")) * time.Millisecond)
			},
			"first byte": func(*rapid.T) {
				if _, a := m.pickOpen(); a != nil {
					m.r.RecordFirstByte(&a.Attempt)
				}
			},
			"suspect": func(t *rapid.T) {
				m.r.SuspectEndpoint(rapid.SampledFrom([]string{"fra-a:1", "ams:1"}).Draw(t, "endpoint"), m.now)
			},
			"lost": func(t *rapid.T) {
				m.r.MarkUnreachable(capacity.Path{Region: "fra", Zone: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), Instance: "l1"})
			},
			"refusal": func(t *rapid.T) {
				if _, a := m.pickOpen(); a != nil && a.Decision.IsSpilled() {
					m.r.RecordSpillRefusal(&a.query, &a.Decision, m.now)
				}
			},
			"acceptance": func(*rapid.T) {
				if _, a := m.pickOpen(); a != nil && a.Decision.IsSpilled() {
					m.r.RecordSpillAcceptance(&a.query, &a.Decision)
				}
			},
			"": func(*rapid.T) { m.checkInvariants() },
		}
		t.Repeat(steps)
		for len(m.open) > 0 {
			m.finishAttempt()
		}
		m.checkInvariants()
		if n := m.r.CountEndpoints(); n != 0 {
			t.Fatalf("%d endpoints have attempts in flight after the last has ended", n)
		}
	})
}

// The retry budget gives at most what is saved up, plus the share of the requests and the floor per second.
func TestRouter_RetryBudgetIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := routerStart()
		r := newTwoZoneRouter(now)
		earned, taken := routing.MaxSavedRetries, 0.0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				d := time.Duration(rapid.IntRange(0, 500).Draw(t, "milliseconds")) * time.Millisecond
				now = now.Add(d)
				earned += routing.RetryFloorPerSec * d.Seconds()
			case 1:
				q, a := sessionQuery(), routing.Attempt{}
				q.RetryCredit = 0.1
				r.Dispatch(q, &a, now)
				r.Dispatch(q, &a, now) // the credit is earned once
				earned += 0.1
			default:
				if r.TakeRetry(now) {
					taken++
				}
			}
		}
		if taken > earned {
			t.Fatalf("%v retries were taken, more than %v", taken, earned)
		}
	})
}
