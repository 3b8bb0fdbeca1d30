package routing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

// newLoggedRouter returns a router with zones of rising backlog.
func newLoggedRouter(zones, logBytes int, now time.Time) *routing.Router {
	r := routing.NewRouter(routing.RouterConfig{Name: "gw", Boot: 1, Rand: newRNG(), DecisionBytes: logBytes})
	r.ApplyPolicy(routing.Policy{Region: "fra"}, now)
	for i := range zones {
		m := testModel("m", int64(1000*i))
		r.ReceiveSummary(&capacity.Summary{Path: capacity.Path{Region: "fra", Zone: fmt.Sprint("z", i), Instance: "l1"}, Boot: 1, Seq: 1, Endpoint: fmt.Sprint("z", i, ":1"), Models: pointersTo([]capacity.ModelCapacity{m})}, now)
	}
	r.Rebuild(now)
	return r
}

// TestDispatchIsTheSameWithALog compares decisions with and without a log, and the log with the decisions.
func TestDispatchIsTheSameWithALog(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	with, without := newLoggedRouter(9, 1<<20, now), newLoggedRouter(9, 0, now)
	for i := range 200 {
		id := fmt.Sprint("req_", i)
		q, p := testQuery(), testQuery()
		q.RequestID = id
		var a, b routing.Attempt
		if x, y := with.Dispatch(q, &a, now), without.Dispatch(p, &b, now); x != y || a.Decision != b.Decision {
			t.Fatalf("with a log %v %+v, without %v %+v", x, a.Decision, y, b.Decision)
		}
		found := decision.FindRequest(with.Decisions().Parts(), id)
		if len(found.Records) != 1 {
			t.Fatalf("%d records", len(found.Records))
		}
		r := found.Records[0]
		if r.Chosen != a.Decision.Path.String() || r.Considered != 9 || len(r.Candidates) != decision.MaxCandidates || r.Candidates[0].Name != r.Chosen || r.PredictedTTFT != a.Decision.TTFTSeconds {
			t.Fatalf("record %+v of %+v", r, a.Decision)
		}
	}
	if without.Decisions() != nil {
		t.Error("a router without a log has one")
	}
}

// BenchmarkDispatch measures a choice with the log off and on.
func BenchmarkDispatch(b *testing.B) {
	for name, bytes := range map[string]int{"log off": 0, "log on": decision.DefaultBytes} {
		b.Run(name, func(b *testing.B) {
			now := time.Unix(1_790_000_000, 0)
			r, q := newLoggedRouter(6, bytes, now), testQuery()
			q.RequestID, q.Tenant = "req_0123456789abcdef", "acme"
			b.ReportAllocs()
			for b.Loop() {
				var a routing.Attempt
				r.Dispatch(q, &a, now)
				r.Finish(&a, openai.TokenUsage{}, false)
			}
		})
	}
}
