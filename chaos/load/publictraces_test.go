package load

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestPublicTracesCoverWorkloads: every public trace that a workload opens is in the list, with all its facts.
func TestPublicTracesCoverWorkloads(t *testing.T) {
	var names []string
	for _, p := range PublicTraces() {
		names = append(names, p.Name)
		if p.Title == "" || p.Size <= 0 || p.Changes == "" || !strings.HasPrefix(p.Source, "https://") {
			t.Errorf("%s lacks a title, size, source or changes: %+v", p.Name, p)
		}
		if p.Licence != "Apache-2.0" && p.Licence != "CC-BY-4.0" {
			t.Errorf("%s: unexpected licence %q", p.Name, p.Licence)
		}
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(p.SHA256) {
			t.Errorf("%s: %q is not a SHA-256", p.Name, p.SHA256)
		}
	}
	for _, w := range []Workload{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}, {Name: "w4"}, {Name: "w5"}, {Name: "w5", Models: []string{"deepseek-r1", "mm-image"}}} {
		dir := t.TempDir()
		w.Traces = dir
		_, err := OpenWorkload(w)
		if err == nil {
			t.Fatalf("%s was opened in an empty folder", w.Name)
		}
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(err.Error(), filepath.Join(dir, filepath.FromSlash(n))) }) {
			t.Errorf("%s reads a file that is not listed: %v", w.Name, err)
		}
		w.Traces = ""
		if _, err = OpenWorkload(w); err == nil || !strings.Contains(err.Error(), "use --traces DIR or set SPILLWAY_TRACES") {
			t.Errorf("%s without a folder of traces: %v", w.Name, err)
		}
	}
}

func TestPublicTracesAreIntactInTheGivenFolder(t *testing.T) {
	dir := testkit.TracesDir(t)
	for _, p := range PublicTraces() {
		if state, err := p.CheckIn(dir); err != nil || state != TraceIntact {
			t.Errorf("%s: %s, %v", p.Name, state, err)
		}
		if info, err := os.Stat(filepath.Join(dir, p.Name)); err != nil || info.Size() != p.Size {
			t.Errorf("%s: %v, want %d bytes", p.Name, err, p.Size)
		}
	}
}

func TestCheckInTellsIntactMissingAndChangedFiles(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("a trace"))
	p := PublicTrace{Name: "some/trace.csv", SHA256: hex.EncodeToString(sum[:])}
	check := func(want TraceState) {
		t.Helper()
		if state, err := p.CheckIn(dir); err != nil || state != want {
			t.Errorf("%s, %v, want %s", state, err, want)
		}
	}
	check(TraceMissing)
	file := filepath.Join(dir, "some", "trace.csv")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]TraceState{"a trace": TraceIntact, "a race": TraceDiffers} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		check(want)
	}
}

// openPublicTrace opens a workload of the public traces, and skips the test without them.
func openPublicTrace(t testing.TB, trace string, w Workload) *Feed {
	t.Helper()
	w.Traces, w.Seed = filepath.Dir(filepath.Dir(publicTracePath(t, trace))), 1
	return openWorkload(t, w)
}

// sortedQuantiles are quantiles of the values of requests.
func sortedQuantiles(list []*Request, of func(*Request) int, percents ...float64) (out []float64) {
	v := make([]int, len(list))
	for i, r := range list {
		v[i] = of(r)
	}
	slices.Sort(v)
	for _, p := range percents {
		out = append(out, float64(v[min(int(p/100*float64(len(v))), len(v)-1)]))
	}
	return out
}

func averageOf(list []*Request, of func(*Request) int) float64 {
	sum := 0
	for _, r := range list {
		sum += of(r)
	}
	return float64(sum) / float64(len(list))
}

func promptTokensOf(r *Request) int { return r.PromptTokens }
func outputTokensOf(r *Request) int { return r.Output }

// measureReuse is the fraction of all blocks, including the last and shorter ones, and of all tokens, that an
// unbounded cache would hit.
func measureReuse(list []*Request, block int) (blocks, tokens float64) {
	seen := map[uint64]bool{}
	var hashes []uint64
	var all, hits, length int
	for _, r := range list {
		hashes = gpu.HashBlocks(hashes[:0], r.Prompt, block)
		n := 0
		for n < len(hashes) && seen[hashes[n]] {
			n++
		}
		for _, h := range hashes[n:] {
			seen[h] = true
		}
		all, hits, length = all+(r.PromptTokens+block-1)/block, hits+n, length+r.PromptTokens
	}
	return float64(hits) / float64(all), float64(hits*block) / float64(length)
}

// busiestOverMean is the maximum number of requests in any interval of a length, over the mean.
func busiestOverMean(list []*Request, of time.Duration) float64 {
	counts := map[time.Duration]int{}
	most := 0
	for _, r := range list {
		counts[r.At/of]++
		most = max(most, counts[r.At/of])
	}
	return float64(most) / (float64(len(list)) * of.Seconds() / list[len(list)-1].At.Seconds())
}

// arrivalVariation is the coefficient of variation of the times between arrivals.
func arrivalVariation(list []*Request) float64 {
	var sum, squares float64
	for i := 1; i < len(list); i++ {
		gap := (list[i].At - list[i-1].At).Seconds()
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(list) - 1)
	return math.Sqrt(squares/n-sum/n*sum/n) / (sum / n)
}

// TestTracesHavePublishedStatistics: the traces as read have their published statistics. Two are available in part
// only, so they may differ more.
func TestTracesHavePublishedStatistics(t *testing.T) {
	for _, c := range []struct {
		workload, trace string
		n               int
		rate            float64
		in, out         []float64 // p10, p50, p90, p99, mean
		within          float64
		blocks, tokens  float64 // reuse; 0: no prefixes
		bursts          []float64
		cv              float64
	}{
		{
			"w1", "azure2023/AzureLLMInferenceTrace_conv.csv.gz", 19366, 5.53,
			[]float64{207, 1020, 2734, 4142, 1155},
			[]float64{54, 129, 424, 601, 211},
			0.01, 0, 0,
			[]float64{2.9, 1.78, 1.54},
			1.09,
		},
		{ // 2,640 of 3,537 s
			"w2", "mooncake/conversation_0-2640s.jsonl.gz", 8722, 3.40,
			[]float64{964, 6909, 27367, 85400, 12035},
			[]float64{24, 350, 597, 1118, 343},
			0.05, 0.366, 0.374,
			[]float64{0, 0, 1.21},
			0, // the shorter percentiles are published for rounded times
		},
		{
			"w3", "mooncake/synthetic.jsonl.gz", 3993, 3.91,
			[]float64{30, 11587, 38611, 66456, 15325},
			[]float64{4, 69, 389, 768, 149},
			0.01, 0.640, 0.651,
			[]float64{3.3, 1.42, 1.23},
			1.01,
		},
		{ // 535 of 710 sessions
			"w4", "agentic/agent-sessions_train.jsonl.gz", 36895, 0,
			[]float64{43000, 105000, 236000, 500000, 123000},
			[]float64{105, 216, 899, 3663, 439},
			0.03, 0, 0, nil, 0, // reuse: TestAgentSessionsReusePrefixes
		},
	} {
		t.Run(c.workload, func(t *testing.T) {
			list := playFeed(t, openPublicTrace(t, c.trace, Workload{Name: c.workload, MaxThink: time.Minute}), math.MaxInt, answerInstantly)
			if len(list) != c.n {
				t.Errorf("%d requests, want %d", len(list), c.n)
			}
			for name, pair := range map[string][2][]float64{
				"in":  {append(sortedQuantiles(list, promptTokensOf, 10, 50, 90, 99), averageOf(list, promptTokensOf)), c.in},
				"out": {append(sortedQuantiles(list, outputTokensOf, 10, 50, 90, 99), averageOf(list, outputTokensOf)), c.out},
			} {
				t.Logf("%s p10/50/90/99 and mean: %.0f, published %.0f", name, pair[0], pair[1])
				for i := range pair[1] {
					if !isNear(pair[0][i], pair[1][i], c.within) {
						t.Errorf("%s: %.0f, published %.0f (p10, 50, 90, 99, mean)", name, pair[0], pair[1])
					}
				}
			}
			if c.blocks > 0 {
				blocks, tokens := measureReuse(list, mooncakeBlockTokens)
				t.Logf("reuse %.3f of blocks, %.3f of tokens, published %.3f and %.3f", blocks, tokens, c.blocks, c.tokens)
				if math.Abs(blocks-c.blocks) > 0.015 || math.Abs(tokens-c.tokens) > 0.015 {
					t.Errorf("reuse %.3f of blocks and %.3f of tokens, published %.3f and %.3f", blocks, tokens, c.blocks, c.tokens)
				}
			}
			if c.rate > 0 && !isNear(float64(len(list))/list[len(list)-1].At.Seconds(), c.rate, 0.03) {
				t.Errorf("%d requests in %v, published %.2f/s", len(list), list[len(list)-1].At, c.rate)
			}
			for i, want := range c.bursts {
				got := busiestOverMean(list, []time.Duration{time.Second, 10 * time.Second, time.Minute}[i])
				t.Logf("burst %.2f, published %.2f", got, want)
				if want > 0 && !isNear(got, want, 0.1) {
					t.Errorf("peak over mean %.2f, published %.2f", got, want)
				}
			}
			if cv := arrivalVariation(list); c.cv > 0 && !isNear(cv, c.cv, 0.03) {
				t.Errorf("coefficient of variation %.2f, published %.2f", cv, c.cv)
			}
		})
	}
}

// TestAgentSessionsReusePrefixes: how much of each turn, and of all turns together, the session has sent before, and
// how often its context restarts.
func TestAgentSessionsReusePrefixes(t *testing.T) {
	f := openPublicTrace(t, "agentic/agent-sessions_train.jsonl.gz", Workload{Name: "w4", MaxThink: time.Minute})
	list := playFeed(t, f, math.MaxInt, answerInstantly)
	before := map[uint64][]*Request{}
	var turns []float64
	var resets, all, hits int
	for _, r := range list {
		best := 0
		for _, p := range before[r.Session] {
			best = max(best, gpu.CountCommonTokens(p.Prompt, r.Prompt)/agentBlockTokens)
		}
		blocks := max(r.PromptTokens/agentBlockTokens, 1)
		all, hits = all+blocks, hits+best
		if len(before[r.Session]) > 0 {
			turns = append(turns, float64(best)/float64(blocks))
			if 2*best < blocks {
				resets++
			}
		}
		before[r.Session] = append(before[r.Session], r)
	}
	slices.Sort(turns)
	p5, p50 := turns[len(turns)/20], turns[len(turns)/2]
	reused, reset := float64(hits)/float64(all), float64(resets)/float64(len(turns))
	t.Logf("%d sessions: %.3f of the blocks (published 0.964); per turn p5 %.3f (0.895), p50 %.3f (0.993), resets %.3f (0.020)", len(before), reused, p5, p50, reset)
	if len(before) != 535 || math.Abs(reused-0.964) > 0.005 || math.Abs(p5-0.895) > 0.02 || math.Abs(p50-0.993) > 0.003 || math.Abs(reset-0.020) > 0.005 {
		t.Error("not what is published")
	}
}

// TestServeGenWorkloadMatchesItsFiles: rates and lengths are those of ServeGen's files, weighted by the clients'
// rates. Published are 973 and 160 tokens for m-large over both weeks and their 162 clients; over the first, which is
// available with 135 of them, the files' own mean is 922 and 168. For deepseek-r1 1,596 and 1,690 are published, and
// the files' own mean is 1,268 and 1,527 by request. The mean of the windows' means, in which a quiet night weighs as
// much as a busy day, is 1,506 and 1,737: prompts are shorter at the peak (660 tokens). The workload uses the mean by
// request, because that is the load of a fleet.
func TestServeGenWorkloadMatchesItsFiles(t *testing.T) {
	const week = 168 * time.Hour
	for _, c := range []struct {
		model   string
		span    time.Duration
		rate    float64
		own     float64 // requests/s of the trace
		in, out float64
	}{
		{"m-large", week, 0.1, 209.5, 922, 168},
		{"m-mid", week, 0.1, 1604, 301, 52},
		{"m-small", week, 0.1, 1063, 128, 18},
		{"deepseek-r1", 24 * time.Hour, 0.7, 16.01, 1268, 1527},
	} {
		t.Run(c.model, func(t *testing.T) {
			dir := filepath.Dir(filepath.Dir(publicTracePath(t, "servegen/language_m-large_rates_week1.csv.gz")))
			f := openWorkload(t, Workload{Name: "w5", Traces: dir, Seed: 1, Models: []string{c.model}, Rate: c.rate, For: c.span})
			c0 := f.roots.(*serveGenSource).clients[0]
			if own := c.rate / c0.speed; !isNear(own, c.own, 0.02) {
				t.Errorf("%.1f requests/s on average, published %.1f", own, c.own)
			}
			list := playFeed(t, f, math.MaxInt, answerInstantly)
			t.Logf("%d requests, %.0f tokens in (%.0f) and %.0f out (%.0f)", len(list), averageOf(list, promptTokensOf), c.in, averageOf(list, outputTokensOf), c.out)
			if !isNear(float64(len(list)), c.rate*c.span.Seconds(), 0.02) || !isNear(averageOf(list, promptTokensOf), c.in, 0.07) || !isNear(averageOf(list, outputTokensOf), c.out, 0.07) {
				t.Errorf("%d requests, %.0f tokens in and %.0f out; want %.0f, %.0f and %.0f", len(list), averageOf(list, promptTokensOf), averageOf(list, outputTokensOf), c.rate*c.span.Seconds(), c.in, c.out)
			}
		})
	}
}

// TestRegionLoadFollowsLocalTime: a region six hours ahead has the traffic of six hours later.
func TestRegionLoadFollowsLocalTime(t *testing.T) {
	const day = 24 * time.Hour
	hours := func(shift time.Duration) (n [24]float64) {
		f := openPublicTrace(t, "servegen/language_m-small_rates_week1.csv.gz", Workload{
			Name: "w5", Models: []string{"m-small"}, Rate: 1, For: day, Regions: []ClientRegion{{Name: "here", Shift: shift}},
		})
		for _, r := range playFeed(t, f, math.MaxInt, answerInstantly) {
			if r.At < day {
				n[r.At/time.Hour]++
			}
		}
		return n
	}
	here, ahead := hours(0), hours(6*time.Hour)
	for h := range 18 {
		if a, b := ahead[h], here[h+6]; math.Abs(a-b) > 6*math.Sqrt(a+b)+20 {
			t.Errorf("%.0f requests at hour %d, %.0f six hours later elsewhere", a, h, b)
		}
	}
}
