package routing_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// What a verdict says that a peer has cached is what its fresh statement and the session's home say, and never more than the prompt:
// the gateway's ledger counts only the rest.
func TestDecisionCarriesPeerCachedTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := testQuery()
		q.PromptTokens = rapid.IntRange(1, 3000).Draw(t, "prompt")
		q.Prefix = []uint64{6, 7}
		want, m := 0, testModel("m", 0)
		if sketch := rapid.IntRange(0, 3000).Draw(t, "sketch"); sketch > 0 {
			m.Prefixes = []capacity.PrefixEntry{{Hash: rapid.SampledFrom(q.Prefix).Draw(t, "which"), Tokens: int64(sketch)}}
			want = sketch
		}
		if q.AffinityTokens = rapid.IntRange(0, 3000).Draw(t, "home"); rapid.Bool().Draw(t, "is home") {
			q.AffinityPath = capacity.Path{Region: "ams"}
			want = max(want, q.AffinityTokens)
		}
		p := testPeer("ams", 10*time.Millisecond, m)
		if p.State = capacity.Freshness(rapid.IntRange(0, 2).Draw(t, "state")); p.State != capacity.Fresh {
			want = 0
		}
		got, ok := routing.ChooseRoute(q, &routing.RoutingView{Peers: []routing.PeerRegion{p}}, time.Time{}, newRNG(), nil)
		if want = min(want, q.PromptTokens); !ok || !got.IsSpilled() || got.CachedTokens != int64(want) {
			t.Fatalf("%+v, want %d tokens cached there", got, want)
		}
	})
}
