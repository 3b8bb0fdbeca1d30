package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

// replayAll returns the choices of a router made again.
func replayAll(t interface{ Fatal(...any) }, r *routing.Router, change func(*routing.RouteQuery, *routing.RoutingView)) (out []routing.ReplayedChoice) {
	p := routing.NewReplayer()
	each := func(parts [][]byte, do func(*decision.Record)) {
		for _, part := range parts {
			for b, rest, ok := decision.NextRecord(part); ok; b, rest, ok = decision.NextRecord(rest) {
				rec, err := decision.DecodeRecord(b)
				if err != nil {
					t.Fatal(err)
				}
				do(&rec)
			}
		}
	}
	each(r.States().Parts(), func(rec *decision.Record) {
		if err := p.AddState(rec); err != nil {
			t.Fatal(err)
		}
	})
	each(r.Decisions().Parts(), func(rec *decision.Record) {
		c, err := p.ReplayChoice(rec, change)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	})
	return out
}

// playGateway makes choices while summaries, peers, drains and loads change.
func playGateway(t *rapid.T) (*routing.Router, int) {
	now := time.Unix(1_790_000_000, 0)
	pcg := rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)
	r := routing.NewRouter(routing.RouterConfig{Name: "gw", Boot: 1, Rand: rand.New(pcg), PCG: pcg, DecisionBytes: 4 << 20})
	choices := 0
	for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
		now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "ms")) * time.Millisecond)
		zone := rapid.IntRange(0, 3).Draw(t, "zone")
		m := testModel("m", rapid.Int64Range(0, 20_000).Draw(t, "ahead"))
		if rapid.Bool().Draw(t, "cached") {
			m.Prefixes = []capacity.PrefixEntry{{Hash: 7, Tokens: 900}}
		}
		r.ReceiveSummary(&capacity.Summary{Path: capacity.Path{Region: "fra", Zone: fmt.Sprint("z", zone), Instance: "l1"}, Boot: 1, Seq: uint64(step + 1), Endpoint: fmt.Sprint("z", zone, ":1"), Models: pointersTo([]capacity.ModelCapacity{m})}, now)
		if rapid.Bool().Draw(t, "directive") {
			peer := testModel("m", rapid.Int64Range(0, 20_000).Draw(t, "peer ahead"))
			r.ApplyPolicy(routing.Policy{
				Region: "fra", ReceivedAt: now, MaxHeadroomAge: 2 * time.Second, SpillShare: 0.5, ZoneWeights: map[string]float64{"z1": 3},
				Drains: []routing.PathDrain{{Path: "fra/z0", Start: now, Over: time.Minute}},
				Peers:  []routing.PeerReport{{Region: "ams", Gateways: []routing.PeerGateway{{Name: "g1", Endpoint: "ams:1"}, {Name: "g2", Endpoint: "ams:2"}}, Summary: &capacity.Summary{Path: capacity.Path{Region: "ams"}, Models: pointersTo([]capacity.ModelCapacity{peer})}, RTT: 12 * time.Millisecond}},
			}, now)
		}
		r.Rebuild(now)
		for range rapid.IntRange(0, 4).Draw(t, "requests") {
			q := testQuery()
			q.RequestID, q.PromptTokens, q.Session = fmt.Sprint("r", choices), rapid.IntRange(1, 30_000).Draw(t, "prompt"), rapid.SampledFrom([]uint64{0, 5}).Draw(t, "session")
			q.Prefix = []uint64{7}[:rapid.IntRange(0, 1).Draw(t, "prefix")]
			var a routing.Attempt
			r.Dispatch(q, &a, now)
			if choices++; rapid.Bool().Draw(t, "ends") {
				r.Finish(&a, openai.TokenUsage{}, false)
			}
		}
	}
	return r, choices
}

// TestReplayIsBitEqual makes the choices of drawn runs again: all are equal in every bit.
func TestReplayIsBitEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, n := playGateway(t)
		if n == 0 {
			return
		}
		out := replayAll(t, r, nil)
		if len(out) != n {
			t.Fatalf("%d of %d choices replayed", len(out), n)
		}
		for i := range out {
			if !out[i].IsEqual() {
				t.Fatalf("choice %d was\n%+v %v, and replayed\n%+v %v", i, out[i].Was, out[i].WasOK, out[i].Now, out[i].NowOK)
			}
		}
	})
}

// TestReplayShowsWhatAChangeWouldHaveDone takes the sooner zone away.
func TestReplayShowsWhatAChangeWouldHaveDone(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	pcg := rand.NewPCG(1, 2)
	r := routing.NewRouter(routing.RouterConfig{Name: "gw", Boot: 1, Rand: rand.New(pcg), PCG: pcg, DecisionBytes: 1 << 20})
	r.ApplyPolicy(routing.Policy{Region: "fra"}, now)
	for i, ahead := range []int64{0, 50_000} {
		m := testModel("m", ahead)
		r.ReceiveSummary(&capacity.Summary{Path: capacity.Path{Region: "fra", Zone: fmt.Sprint("z", i), Instance: "l1"}, Boot: 1, Seq: 1, Endpoint: fmt.Sprint("z", i, ":1"), Models: pointersTo([]capacity.ModelCapacity{m})}, now)
	}
	r.Rebuild(now)
	var a routing.Attempt
	r.Dispatch(testQuery(), &a, now)
	out := replayAll(t, r, func(_ *routing.RouteQuery, v *routing.RoutingView) { v.Locals = v.Locals[1:] })
	if len(out) != 1 || out[0].Was.Endpoint != "z0:1" || out[0].Now.Endpoint != "z1:1" || !(out[0].Now.TTFTSeconds > out[0].Was.TTFTSeconds) {
		t.Errorf("%+v", out)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte{2, 1, 0, 0, 0}, []byte{1, 0})
	f.Fuzz(func(_ *testing.T, state, inputs []byte) {
		p := routing.NewReplayer()
		_ = p.AddState(&decision.Record{Event: decision.EventState, Inputs: state})
		_, _ = p.ReplayChoice(&decision.Record{Event: decision.EventChoice, Inputs: inputs}, nil)
	})
}
