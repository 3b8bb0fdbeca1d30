package experiment_test

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
	"github.com/spillway-lb/spillway/internal/testkit"
)

// hitRateTolerance is how far a hit rate may be below the oracle's.
const hitRateTolerance = 0.03

// readMooncakePrompts reads a public trace in order; a request's session is its second block, as in the oracle.
func readMooncakePrompts(t *testing.T, name string) []tracePrompt {
	t.Helper()
	path := filepath.Join(testkit.TracesDir(t), "mooncake", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SPILLWAY_TRACES does not hold mooncake/%s: %v", name, err)
	}
	trace, err := load.OpenTrace(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var out []tracePrompt
	for {
		a, err := trace.NextArrival()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tracePrompt{Text: a.Prompt, Session: a.Prompt[min(1, len(a.Prompt)-1)].ID})
	}
}

// TestPublicTracesHitAsMuchAsTheOracle: on eight replicas no rule's hit rate is below that of a reference with exact
// knowledge of each cache. The conversation trace's figures are those of the public part.
func TestPublicTracesHitAsMuchAsTheOracle(t *testing.T) {
	for _, c := range []struct {
		trace  string
		tokens int
		want   map[string]float64
	}{
		{"conversation_0-2640s.jsonl.gz", 490_000, map[string]float64{"round_robin": .059, "consistent_hash": .163, longestPrefix: .044, "lmetric": .164, "predictive": .164, pooledCache: .169}},
		{"conversation_0-2640s.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .110, "consistent_hash": .346, longestPrefix: .136, "lmetric": .345, "predictive": .345, pooledCache: .345}},
		{"synthetic.jsonl.gz", 490_000, map[string]float64{"round_robin": .062, "consistent_hash": .347, longestPrefix: .351, "lmetric": .345, "predictive": .345, pooledCache: .361}},
		{"synthetic.jsonl.gz", 3_000_000, map[string]float64{"round_robin": .194, "consistent_hash": .639, longestPrefix: .640, "lmetric": .639, "predictive": .639, pooledCache: .640}},
	} {
		prompts := readMooncakePrompts(t, c.trace)
		for rule, want := range c.want {
			r, err := playPrompts(prompts, cacheFleet{Replicas: 8, CacheTokens: c.tokens, Block: 512}, rule)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d tokens, %s: hit %.3f (oracle %.3f), imbalance %.2f", c.trace, c.tokens, rule, r.Hit, want, r.Imbalance)
			if r.Hit < want*(1-hitRateTolerance) {
				t.Errorf("%s, %d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.trace, c.tokens, rule, r.Hit, want)
			}
		}
	}
}

// makeConversations is conversations in turn: each continues its own last prompt, after a common beginning.
func makeConversations(sessions, turns int) []tracePrompt {
	rng := rand.New(rand.NewPCG(7, 7))
	texts := make([][]gpu.Piece, sessions)
	var out []tracePrompt
	for range sessions * turns {
		s := rng.IntN(sessions)
		if texts[s] == nil {
			texts[s] = []gpu.Piece{{ID: 1, Tokens: 512}}
		}
		texts[s] = append(texts[s], gpu.Piece{ID: rng.Uint64(), Tokens: 512 * (1 + rng.IntN(3))})
		out = append(out, tracePrompt{Text: append([]gpu.Piece(nil), texts[s]...), Session: uint64(s + 1)})
	}
	return out
}

// TestSampleHitsAsMuchAsThePool: with sufficiently large caches, rules that know prefixes come close to the bound,
// others stay far below it, and none exceeds it.
func TestSampleHitsAsMuchAsThePool(t *testing.T) {
	prompts := makeConversations(64, 12)
	fleet := cacheFleet{Replicas: 4, CacheTokens: 2_000_000, Block: 512}
	bound, err := playPrompts(prompts, fleet, pooledCache)
	if err != nil {
		t.Fatal(err)
	}
	for rule, least := range map[string]float64{"predictive": .97, "lmetric": .97, "cache_aware": .9, "consistent_hash": .8, "round_robin": 0} {
		r, err := playPrompts(prompts, fleet, rule)
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

// TestCacheEvictsOldestPromptFromItsEnd follows an LRU cache of three blocks step by step.
func TestCacheEvictsOldestPromptFromItsEnd(t *testing.T) {
	c := newPrefixCache(3)
	c.addPrompt([]uint64{1, 2, 3})
	c.addPrompt([]uint64{4})
	if c.matchPrefix([]uint64{1, 2, 3}) != 2 || c.matchPrefix([]uint64{4}) != 1 {
		t.Fatal("the fourth block pushed out another than the third")
	}
	c.addPrompt([]uint64{5, 6, 7, 8}) // more than fits: its beginning stays
	if c.matchPrefix([]uint64{5, 6, 7, 8}) != 3 || c.matchPrefix([]uint64{1}) != 0 {
		t.Fatal("a prompt longer than the cache does not leave its beginning there")
	}
}

func TestUnknownRuleIsAnError(t *testing.T) {
	if _, err := playPrompts(nil, cacheFleet{Replicas: 2, CacheTokens: 1024, Block: 512}, "best"); err == nil || !strings.Contains(err.Error(), longestPrefix) {
		t.Errorf("an unknown rule says %v", err)
	}
	if _, err := playPrompts(nil, cacheFleet{Replicas: 1 << 20, CacheTokens: 1024, Block: 512}, "lmetric"); err == nil {
		t.Error("a million replicas are taken")
	}
}

var runAgentic = flag.Bool("agentic", false, "replay an hour of 160 agents' sessions, which takes minutes")

// TestAgentsHitAsMuchAsTheOracle: the same for agents' sessions, 160 that begin within an hour with pauses of a
// minute at most: `make oracle`.
func TestAgentsHitAsMuchAsTheOracle(t *testing.T) {
	if !*runAgentic {
		t.Skip("minutes of work: -agentic runs it")
	}
	feed, err := load.OpenWorkload(load.Workload{Name: "w4", Traces: testkit.TracesDir(t), Sessions: 160, Over: time.Hour, MaxThink: time.Minute, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var prompts []tracePrompt
	for {
		at, ok, err := feed.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		r := feed.Pop()
		prompts = append(prompts, tracePrompt{Text: r.Prompt, Session: r.Session})
		feed.FinishRequest(r, at+time.Duration(r.Output)*20*time.Millisecond, true)
	}
	for _, c := range []struct {
		tokens int
		want   map[string]float64
	}{
		{490_000, map[string]float64{"round_robin": .103, "consistent_hash": .361, longestPrefix: .349, "lmetric": .354, "predictive": .361, pooledCache: .480}},
		{3_000_000, map[string]float64{"round_robin": .438, "consistent_hash": .953, longestPrefix: .955, "lmetric": .951, "predictive": .955, pooledCache: .955}},
	} {
		for _, rule := range slices.Sorted(maps.Keys(c.want)) {
			r, err := playPrompts(prompts, cacheFleet{Replicas: 8, CacheTokens: c.tokens, Block: 64}, rule)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%d prompts, %d tokens, %-16s hit %.3f (oracle %.3f), imbalance %.2f\n", len(prompts), c.tokens, rule, r.Hit, c.want[rule], r.Imbalance)
			if r.Hit < c.want[rule]*(1-hitRateTolerance) {
				t.Errorf("%d tokens, %s: hits %.3f of the blocks, the oracle %.3f", c.tokens, rule, r.Hit, c.want[rule])
			}
		}
	}
}
