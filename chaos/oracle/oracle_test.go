package oracle

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// tolerance is how far a hit rate may fall under the oracle's.
const tolerance = 0.03

// mooncake reads a public trace in its order; a request's session is its second block, as the oracle's is.
func mooncake(t *testing.T, name string) []Prompt {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "traces", "mooncake", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the public trace %s is not here: put the traces into ../shared/traces beside the repository to run this test", name)
	}
	trace, err := load.OpenTrace(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var out []Prompt
	for {
		a, err := trace.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Prompt{Text: a.Prompt, Session: a.Prompt[min(1, len(a.Prompt)-1)].ID})
	}
}

// TestPublicTracesHitAsMuchAsTheOracle: on eight replicas no rule's hit rate is under what a reference, which knows each
// cache to the block, came to for it. The conversation trace's figures are those of the part that is public here.
func TestPublicTracesHitAsMuchAsTheOracle(t *testing.T) {
	for _, c := range []struct {
		trace  string
		tokens int
		want   map[string]float64
	}{
		{"conversation_0-2640s.jsonl.gz", 490_000, map[string]float64{"round_robin": .059, "consistent_hash": .163, Longest: .044, "lmetric": .164, "predictive": .164, Pooled: .169}},
		{"conversation_0-2640s.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .110, "consistent_hash": .346, Longest: .136, "lmetric": .345, "predictive": .345, Pooled: .345}},
		{"synthetic.jsonl.gz", 490_000, map[string]float64{"round_robin": .062, "consistent_hash": .347, Longest: .351, "lmetric": .345, "predictive": .345, Pooled: .361}},
		{"synthetic.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .194, "consistent_hash": .639, Longest: .640, "lmetric": .639, "predictive": .639, Pooled: .640}},
	} {
		prompts := mooncake(t, c.trace)
		for rule, want := range c.want {
			r, err := Play(prompts, Fleet{Replicas: 8, Tokens: c.tokens, Block: 512}, rule)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d tokens, %s: hit %.3f (oracle %.3f), imbalance %.2f", c.trace, c.tokens, rule, r.Hit, want, r.Imbalance)
			if r.Hit < want*(1-tolerance) {
				t.Errorf("%s, %d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.trace, c.tokens, rule, r.Hit, want)
			}
		}
	}
}

// sample is conversations that take turns: each goes on from its own last prompt, after a beginning that all share.
func sample(sessions, turns int) []Prompt {
	rng := rand.New(rand.NewPCG(7, 7))
	texts := make([][]gpu.Piece, sessions)
	var out []Prompt
	for range sessions * turns {
		s := rng.IntN(sessions)
		if texts[s] == nil {
			texts[s] = []gpu.Piece{{ID: 1, Tokens: 512}}
		}
		texts[s] = append(texts[s], gpu.Piece{ID: rng.Uint64(), Tokens: 512 * (1 + rng.IntN(3))})
		out = append(out, Prompt{Text: append([]gpu.Piece(nil), texts[s]...), Session: uint64(s + 1)})
	}
	return out
}

// TestASampleHitsAsMuchAsThePool: where caches are large enough for all, rules that know prefixes come near the bound, and
// those that do not stay far under it; and no rule exceeds it.
func TestASampleHitsAsMuchAsThePool(t *testing.T) {
	prompts := sample(64, 12)
	fleet := Fleet{Replicas: 4, Tokens: 2_000_000, Block: 512}
	bound, err := Play(prompts, fleet, Pooled)
	if err != nil {
		t.Fatal(err)
	}
	for rule, least := range map[string]float64{"predictive": .97, "lmetric": .97, "cache_aware": .9, "consistent_hash": .8, "round_robin": 0} {
		r, err := Play(prompts, fleet, rule)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: hit %.3f of %.3f, imbalance %.2f", rule, r.Hit, bound.Hit, r.Imbalance)
		if r.Hit < least*bound.Hit || r.Hit > bound.Hit || rule == "round_robin" && r.Hit > .8*bound.Hit {
			t.Errorf("%s hits %.3f of the blocks, the pool %.3f", rule, r.Hit, bound.Hit)
		}
		if rule == "predictive" && r.Imbalance > 1.5 {
			t.Errorf("%s: the busiest replica computes %.2f times the mean", rule, r.Imbalance)
		}
	}
}

// TestACacheForgetsTheOldestFromTheEnd works an LRU of three blocks by hand.
func TestACacheForgetsTheOldestFromTheEnd(t *testing.T) {
	c := newCache(3)
	c.take([]uint64{1, 2, 3})
	c.take([]uint64{4})
	if c.match([]uint64{1, 2, 3}) != 2 || c.match([]uint64{4}) != 1 {
		t.Fatal("the fourth block pushed out another than the third")
	}
	c.take([]uint64{5, 6, 7, 8}) // more than fits: its beginning stays
	if c.match([]uint64{5, 6, 7, 8}) != 3 || c.match([]uint64{1}) != 0 {
		t.Fatal("a prompt longer than the cache does not leave its beginning there")
	}
}

func TestUnknownRulesAreNamed(t *testing.T) {
	if _, err := Play(nil, Fleet{Replicas: 2, Tokens: 1024, Block: 512}, "best"); err == nil || !strings.Contains(err.Error(), Longest) {
		t.Errorf("an unknown rule says %v", err)
	}
	if _, err := Play(nil, Fleet{Replicas: 1 << 20, Tokens: 1024, Block: 512}, "lmetric"); err == nil {
		t.Error("a million replicas are taken")
	}
}

var agentic = flag.Bool("agentic", false, "replay an hour of 160 agents' sessions, which takes minutes")

// TestAgentsHitAsMuchAsTheOracle: the same of agents' sessions, 160 that begin within an hour with pauses of a minute at most:
// `make oracle`.
func TestAgentsHitAsMuchAsTheOracle(t *testing.T) {
	if !*agentic {
		t.Skip("minutes of work: -agentic runs it")
	}
	feed, err := load.Open(load.Workload{Name: "w4", Traces: filepath.Join("..", "..", "..", "shared", "traces"), Sessions: 160, Over: time.Hour, MaxThink: time.Minute, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var prompts []Prompt
	for {
		at, ok, err := feed.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		r := feed.Pop()
		prompts = append(prompts, Prompt{Text: r.Prompt, Session: r.Session})
		feed.Ended(r, at+time.Duration(r.Output)*20*time.Millisecond, true)
	}
	for _, c := range []struct {
		tokens int
		want   map[string]float64
	}{
		{490_000, map[string]float64{"round_robin": .103, "consistent_hash": .361, Longest: .349, "lmetric": .354, "predictive": .361, Pooled: .480}},
		{3_000_000, map[string]float64{"round_robin": .438, "consistent_hash": .953, Longest: .955, "lmetric": .951, "predictive": .955, Pooled: .955}},
	} {
		for _, rule := range slices.Sorted(maps.Keys(c.want)) {
			r, err := Play(prompts, Fleet{Replicas: 8, Tokens: c.tokens, Block: 64}, rule)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%d prompts, %d tokens, %-16s hit %.3f (oracle %.3f), imbalance %.2f\n", len(prompts), c.tokens, rule, r.Hit, c.want[rule], r.Imbalance)
			if r.Hit < c.want[rule]*(1-tolerance) {
				t.Errorf("%d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.tokens, rule, r.Hit, c.want[rule])
			}
		}
	}
}
