package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answerPaced answers at 20 ms a token.
func answerPaced(r *Request) (time.Duration, bool) {
	return time.Duration(r.Output) * 20 * time.Millisecond, true
}

// TestWorkloadsAreRepeatableBySeed: equal seeds give equal runs, different seeds different ones, and every request is
// complete.
func TestWorkloadsAreRepeatableBySeed(t *testing.T) {
	regions := []ClientRegion{{Name: "us", Share: 2}, {Name: "eu"}, {Name: "asia"}}
	for _, w := range []Workload{
		{Name: "w1", Trace: "testdata/azure.csv"},
		{Name: "w2", Trace: "testdata/mooncake.jsonl"},
		{Name: "w4", Trace: "testdata/agents.jsonl", Sessions: 5, Over: time.Minute},
		{Name: "w6"},
		{Name: "w6", Branch: 4},
		{Name: "w7", Rate: 20},
		{Name: "w8"},
		{Name: "w9"},
		{Name: "w10"},
		{Name: "w10", Variant: "peak"},
		{Name: "w10", Variant: "greedy"},
		{Name: "w10", Variant: "burst"},
		{Name: "chats"},
	} {
		t.Run(w.Name+w.Variant, func(t *testing.T) {
			run := func(seed uint64) []*Request {
				w.Seed, w.For, w.Regions = seed, 5*time.Minute, regions
				return playFeed(t, openWorkload(t, w), 400, answerPaced)
			}
			first, again, other := run(1), run(1), run(2)
			if len(first) < 10 || len(first) != len(again) {
				t.Fatalf("%d requests, then %d", len(first), len(again))
			}
			moved := false
			for i, r := range first {
				s := again[i]
				if r.At != s.At || r.Session != s.Session || r.Region != s.Region || !slices.Equal(r.Prompt, s.Prompt) || r.Output != s.Output {
					t.Fatalf("one seed, two runs: request %d", i)
				}
				if r.PromptTokens != gpu.CountTokens(r.Prompt) || r.PromptTokens < 1 || r.Output < 1 || r.Session == 0 || r.Region < 0 || r.Region > 2 {
					t.Fatalf("request %d: %+v", i, r)
				}
				moved = moved || i < len(other) && (r.At != other[i].At || r.Region != other[i].Region)
			}
			if !moved {
				t.Error("the seed changes nothing")
			}
		})
	}
}

// TestTreeRequestsExtendTheirParent: 15 or 85 requests a tree, every prompt its parent's plus the answer to that; one
// tree after the other.
func TestTreeRequestsExtendTheirParent(t *testing.T) {
	for branch, size := range map[int]int{2: 15, 4: 85} {
		w := Workload{Name: "w6", Branch: branch, Clients: []int{1}, For: time.Hour, Seed: 1}
		list := playFeed(t, openWorkload(t, w), 3*size, answerPaced)
		var levels [3][4]int
		for i, r := range list {
			if int(r.Turn) != i%size || r.Session != list[i-i%size].Session {
				t.Fatalf("branch %d: request %d is turn %d of another tree", branch, i, r.Turn)
			}
			levels[i/size][len(r.Prompt)-2]++
		}
		for i, n := range levels {
			if n != [4]int{1, branch, branch * branch, branch * branch * branch} {
				t.Errorf("branch %d: tree %d has %v requests by level", branch, i, n)
			}
		}
		if list[0].Session == list[size].Session {
			t.Errorf("branch %d: the second tree is the first", branch)
		}
		parent, child := list[0], list[1]
		if gpu.CountCommonTokens(parent.Prompt, child.Prompt) != parent.PromptTokens || child.Prompt[2] != (Piece{ID: parent.Answer, Tokens: parent.Output}) {
			t.Errorf("branch %d: a thought's prompt is not its parent's prompt and answer", branch)
		}
	}
	mixed := Workload{Name: "w6", Branches: []int{4, 2, 2}, Clients: []int{2, 3, 3}, Regions: []ClientRegion{{}, {}, {}}, For: 30 * time.Second, Seed: 1}
	by := map[int32]map[int32]bool{}
	for _, r := range playFeed(t, openWorkload(t, mixed), 100_000, answerPaced) {
		if by[r.Region] == nil {
			by[r.Region] = map[int32]bool{}
		}
		by[r.Region][r.Tenant] = true
	}
	if len(by[0]) != 2 || len(by[1]) != 3 || len(by[2]) != 3 {
		t.Errorf("clients by region: %v", by)
	}
}

// TestSaaSGroupsSharePrefixes: 150 groups of 5 prompts with the expected lengths.
func TestSaaSGroupsSharePrefixes(t *testing.T) {
	list := playFeed(t, openWorkload(t, Workload{Name: "w7", Rate: 30, Seed: 1}), 1500, answerInstantly)
	groups, prompts := map[uint64]int{}, map[uint64]bool{}
	for _, r := range list {
		groups[r.Session]++
		prompts[r.Prompt[1].ID] = true
		if r.PromptTokens != 7200 || r.Output != 1000 {
			t.Fatalf("%+v", r)
		}
	}
	if len(groups) != 150 || len(prompts) != 750 || groups[list[0].Session] != 10 {
		t.Errorf("%d groups, %d prompts", len(groups), len(prompts))
	}
	if !isNear(1500/list[1499].At.Seconds(), 30, 0.1) {
		t.Errorf("1,500 requests in %v", list[1499].At)
	}
}

func TestCodingAndReasoningLengths(t *testing.T) {
	list := playFeed(t, openWorkload(t, Workload{Name: "w8", Clients: []int{300}, For: 20 * time.Minute, Seed: 1}), 20_000, answerPaced)
	turns, contexts, begun := map[uint64]int{}, 0.0, 0.0
	for _, r := range list {
		turns[r.Session]++
		if r.Turn == 0 {
			begun++
			contexts += float64(r.Prompt[0].Tokens)
			if n := r.Prompt[0].Tokens; n < 3000 || n > 100_000 || r.Prompt[1].Tokens != 1500 {
				t.Fatalf("%+v", r.Prompt)
			}
		}
	}
	most, ended := 0, list[len(list)-1].At-10*time.Minute
	sum, n := 0, 0
	for _, r := range list {
		if r.Turn == 0 && r.At < ended {
			sum, n = sum+turns[r.Session], n+1
		}
		most = max(most, turns[r.Session])
	}
	if mean := float64(sum) / float64(n); !isNear(mean, 6, 0.08) || most > 20 || !isNear(contexts/begun, 55_000, 0.05) {
		t.Errorf("%.2f turns on average and %d at the most, contexts of %.0f tokens", mean, most, contexts/begun)
	}
	list = playFeed(t, openWorkload(t, Workload{Name: "w9", Rate: 20, Seed: 1}), 8000, answerInstantly)
	if !isNear(averageOf(list, promptTokensOf), 1250, 0.04) || !isNear(averageOf(list, outputTokensOf), 8000, 0.04) || sortedQuantiles(list, outputTokensOf, 100)[0] > 32_000 {
		t.Errorf("reasoning: %.0f tokens in, %.0f out", averageOf(list, promptTokensOf), averageOf(list, outputTokensOf))
	}
}

func TestAdversaryVariants(t *testing.T) {
	open := func(variant string, n int) []*Request {
		return playFeed(t, openWorkload(t, Workload{Name: "w10", Variant: variant, Rate: 20, Seed: 1}), n, answerInstantly)
	}
	count := func(list []*Request, is func(*Request) bool) float64 {
		n := 0.0
		for _, r := range list {
			if is(r) {
				n++
			}
		}
		return n / float64(len(list))
	}
	hot := open("hot", 10_000)
	if part := count(hot, func(r *Request) bool { return r.Tenant == 0 }); !isNear(part, 0.45, 0.05) {
		t.Errorf("the hot prefix has %.2f of the requests", part)
	}
	greedy := open("greedy", 10_000)
	if part := count(greedy, func(r *Request) bool { return r.Tenant == 0 }); !isNear(part, 0.52, 0.05) {
		t.Errorf("the greedy client has %.2f of the requests", part)
	}
	bursts := open("burst", 24_000)
	if b := busiestOverMean(bursts, 10*time.Second); !isNear(b, 13/2.0, 0.15) { // over the mean, which the bursts double
		t.Errorf("a burst is %.1f times the mean", b)
	}
	if rate := float64(len(bursts)) / bursts[len(bursts)-1].At.Seconds(); !isNear(rate, 20, 0.1) {
		t.Errorf("%.1f requests/s, want 20 on average", rate)
	}
	peaks := open("peak", 20_000)
	if b := busiestOverMean(peaks, time.Minute); !isNear(b, 3/(5.0/3), 0.1) {
		t.Errorf("the peak is %.2f times the mean", b)
	}
}

// TestChatsShareAsMuchAsMeasured: 19 % within a user, 2.5 % across, averaged over pairs.
func TestChatsShareAsMuchAsMeasured(t *testing.T) {
	w := Workload{Name: "chats", For: 30 * time.Minute, Regions: []ClientRegion{{}, {}, {}}, Seed: 1}
	list := playFeed(t, openWorkload(t, w), math.MaxInt, answerPaced)
	var sum, n [2]float64
	for i := 0; i < len(list); i += 7 {
		for j := i + 1; j < len(list); j++ {
			a, b := list[i], list[j]
			k := 0
			if a.Tenant != b.Tenant {
				if k = 1; j%101 > 0 {
					continue
				}
			}
			sum[k] += float64(gpu.CountCommonTokens(a.Prompt, b.Prompt)) / float64(min(a.PromptTokens, b.PromptTokens))
			n[k]++
		}
	}
	within, across := sum[0]/n[0], sum[1]/n[1]
	t.Logf("%.3f within a user, %.3f across", within, across)
	if math.Abs(within-0.19) > 0.03 || math.Abs(across-0.025) > 0.004 {
		t.Errorf("%.3f within a user and %.3f across, measured 0.19 and 0.025", within, across)
	}
}

// TestAgentTurnsFollowEachOther: turns follow each other, a subagent runs concurrently, and tools and system are
// shared between sessions.
func TestAgentTurnsFollowEachOther(t *testing.T) {
	f := openWorkload(t, Workload{Name: "w4", Trace: "testdata/agents.jsonl", Over: time.Second, Seed: 1})
	list := playFeed(t, f, 100, func(*Request) (time.Duration, bool) { return time.Second, true })
	sessions := map[uint64][]*Request{}
	for _, r := range list {
		sessions[r.Session] = append(sessions[r.Session], r)
	}
	if len(sessions) != 2 || len(list) != 7 {
		t.Fatalf("%d requests of %d sessions", len(list), len(sessions))
	}
	var long, short []*Request
	for _, s := range sessions {
		if len(s) == 5 {
			long = s
		} else {
			short = s
		}
	}
	start := long[0].At
	for i, want := range []struct {
		at     time.Duration
		turn   int32
		tokens int
		common int // with the session's first
	}{
		{0, 0, 650, 650},
		{3 * time.Second, 1, 700, 650 - 650%agentBlockTokens},
		{4500 * time.Millisecond, 2, 300, 0}, // the subagent, half a second after the answer
		{5500 * time.Millisecond, 3, 400, 0},
		{9 * time.Second, 4, 1000, 640},
	} {
		r := long[i]
		if r.At-start != want.at || r.Turn != want.turn || r.PromptTokens != want.tokens || i > 0 && gpu.CountCommonTokens(r.Prompt, long[0].Prompt) != want.common {
			t.Errorf("request %d: turn %d at %v with %d tokens, %d in common, want %+v", i, r.Turn, r.At-start, r.PromptTokens, gpu.CountCommonTokens(r.Prompt, long[0].Prompt), want)
		}
	}
	if n := gpu.CountCommonTokens(short[0].Prompt, long[0].Prompt); n != 4*agentBlockTokens {
		t.Errorf("two sessions share %d tokens, want the %d of the same tools and system", n, 4*agentBlockTokens)
	}
}

func TestBadAgentTracesAreRejected(t *testing.T) {
	good := `{"tool_tokens":64,"system_tokens":0,"requests":[{"t":0,"type":"n","in":100,"out":1,"h":[[1,1]]}]}`
	for says, line := range map[string]string{
		"line 2: reading":           good + "\n{",
		"line 1: request 0: h: 5":   `{"requests":[{"in":1,"out":1,"h":[[5,2]]}]}`,
		"line 1: request 0: -1":     `{"requests":[{"in":-1,"out":1}]}`,
		"are seconds":               `{"requests":[{"t":-1,"in":1,"out":1}]}`,
		"no requests":               `{"requests":[]}`,
		"only blocks of 64":         `{"block_size":16,"requests":[]}`,
		"request 1: request 0: 1 a": `{"requests":[{"in":1,"out":1},{"type":"subagent","requests":[{"in":1,"out":-7}]}]}`,
	} {
		r := newAgentReader(strings.NewReader(line))
		var err error
		for err == nil {
			_, err = r.readSession(1)
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", line, err, says)
		}
	}
}

func TestBadServeGenFilesAreRejected(t *testing.T) {
	m := &serveGenModel{rates: map[int][]serveGenRate{}, lengths: map[int][]serveGenLengths{}}
	lengths := lengthReader{model: m, sums: map[[2]int]*serveGenLengths{}}
	for says, c := range map[string]struct {
		text   string
		fields int
		add    func([]string) error
	}{
		"f.csv: line 2: 3 fields":          {"client,t,rate,cv,dist,p1,p2\n1,2,3\n", 7, m.addRate},
		"f.csv: line 1: \"x\" is not a cl": {"x,0,1,1,G,1,1\n", 7, m.addRate},
		"rate: \"NaN\"":                    {"0,0,NaN,1,G,1,1\n", 7, m.addRate},
		"neither G nor W":                  {"0,0,1,1,N,1,1\n", 7, m.addRate},
		"p1: \"0\"":                        {"0,0,1,1,G,0,1\n", 7, m.addRate},
		"do not ascend":                    {"0,0,input_tokens,1,9,8,7,6,5,4,3,2,1,0,0\n", 15, lengths.addLengths},
		"not a time":                       {"0,-5,1,1,G,1,1\n", 7, m.addRate},
	} {
		err := scanTable(strings.NewReader(c.text), "f.csv", c.fields, "client,t,rate,cv,dist,p1,p2", c.add)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", c.text, err, says)
		}
	}
	if _, _, err := serveGenFiles("m-huge"); err == nil || !strings.Contains(err.Error(), "use m-large") {
		t.Error(err)
	}
}

func FuzzAgents(f *testing.F) {
	f.Add(`{"tool_tokens":64,"system_tokens":64,"requests":[{"t":0,"in":200,"out":1,"h":[[1,3]]},{"type":"subagent","t":5,"requests":[{"in":3,"out":4,"h":[[9,9]]}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := newAgentReader(strings.NewReader(text))
		for range 20 {
			s, err := r.readSession(1)
			if err != nil {
				return
			}
			for i, turn := range s.turns {
				if turn.promptTokens < 1 || turn.promptTokens > maxTraceTokens || turn.outputTokens < 1 || gpu.CountTokens(turn.prompt) != turn.promptTokens || turn.thinkTime < 0 {
					t.Fatalf("turn %d: %+v", i, turn)
				}
				for _, next := range turn.followUps {
					if next <= i || next >= len(s.turns) {
						t.Fatalf("turn %d is followed by %d of %d", i, next, len(s.turns))
					}
				}
			}
		}
	})
}

func FuzzServeGen(f *testing.F) {
	f.Add("0,0,1.5,1,G,0.5,1\n0,600,2,1,W,0.5,1\n", "0,0,input_tokens,10,1,2,3,4,5,6,7,8,9,10,11\n0,0,output_tokens,10,1,2,3,4,5,6,7,8,9,10,11\n")
	f.Fuzz(func(t *testing.T, rates, lengths string) {
		m := &serveGenModel{rates: map[int][]serveGenRate{}, lengths: map[int][]serveGenLengths{}}
		l := lengthReader{model: m, sums: map[[2]int]*serveGenLengths{}}
		if scanTable(strings.NewReader(rates), "r", 7, "", m.addRate) != nil || scanTable(strings.NewReader(lengths), "l", 15, "", l.addLengths) != nil || l.addPooled() != nil {
			return
		}
		for number := range m.rates {
			c := &serveGenClient{model: m, number: number, id: 1, speed: 1e-3}
			last := time.Duration(0)
			for range 20 {
				if m.windows > 100 || !c.advanceArrival() {
					break
				}
				in, out := c.drawLengths()
				if c.due < last || in < 1 || in > 2*maxTraceTokens || out < 1 || out > 2*maxTraceTokens {
					t.Fatalf("due %v after %v, %d in, %d out", c.due, last, in, out)
				}
				last = c.due
			}
		}
	})
}
