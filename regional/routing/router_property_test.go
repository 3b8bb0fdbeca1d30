package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

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
