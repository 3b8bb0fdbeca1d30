package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// agentLoops are agents in closed loops: each turn repeats all before it, with the answer and a tool's output added,
// and arrives some seconds after the answer. A session that reached its length is followed by a new one.
type agentLoops struct {
	rng           *rand.Rand
	dueRequests   []*load.Request // in order of time
	lastRequestID uint64
	lastSessionID uint64 // of sessions
}

// Parameters of the agents: prompts as in public agent sessions, most of each turn cached.
const (
	minFirstPrompt   = 8_000  // minimum tokens of a session's first prompt
	maxSessionPrompt = 60_000 // tokens after which it ends
)

func newAgentLoops(agents int, seed uint64) *agentLoops {
	l := &agentLoops{rng: rand.New(rand.NewPCG(seed, 0x1009))}
	for range agents {
		l.startSession(time.Duration(l.rng.Float64() * float64(40*time.Second)))
	}
	return l
}

func (l *agentLoops) startSession(at time.Duration) {
	l.lastSessionID++
	first := minFirstPrompt + l.rng.IntN(20_000)
	l.addRequest(&load.Request{At: at, Session: l.lastSessionID, Prompt: []gpu.Piece{{ID: 1, Tokens: 2000}, {ID: l.lastSessionID << 20, Tokens: first}}})
}

func (l *agentLoops) addRequest(q *load.Request) {
	l.lastRequestID++
	q.ID, q.PromptTokens, q.Output, q.Answer = l.lastRequestID, gpu.CountTokens(q.Prompt), 40+l.rng.IntN(400), q.Session<<20+uint64(q.Turn)*2+1
	at, _ := slices.BinarySearchFunc(l.dueRequests, q, func(a, b *load.Request) int { return int(a.At - b.At) })
	l.dueRequests = slices.Insert(l.dueRequests, at, q)
}

func (l *agentLoops) Peek() (time.Duration, bool, error) {
	if len(l.dueRequests) == 0 {
		return 0, false, nil
	}
	return l.dueRequests[0].At, true, nil
}

func (l *agentLoops) Pop() *load.Request {
	q := l.dueRequests[0]
	l.dueRequests = l.dueRequests[1:]
	return q
}

func (l *agentLoops) FinishRequest(q *load.Request, at time.Duration, ok bool) {
	think := time.Duration((0.5 + 6*l.rng.ExpFloat64()) * float64(time.Second))
	if !ok || q.PromptTokens > maxSessionPrompt {
		l.startSession(at + think)
		return
	}
	prompt := append(slices.Clone(q.Prompt), gpu.Piece{ID: q.Answer, Tokens: q.Output}, gpu.Piece{ID: q.Answer + 1, Tokens: 200 + l.rng.IntN(3000)})
	l.addRequest(&load.Request{At: at + think, Session: q.Session, Turn: q.Turn + 1, Prompt: prompt})
}

func agentsScenario(seed uint64, estimateError float64) Scenario {
	return Scenario{
		Fleet: singleZoneFleet(8, "A100", "Llama-3.1-8B"), Seed: seed, Duration: 5 * time.Minute, WarmUp: time.Minute, Workload: newAgentLoops(24, seed),
		SLO: GoodputSLO{TTFT: 3 * time.Second, TPOT: 100 * time.Millisecond}, EstimateError: estimateError, Policy: "predictive",
	}
}

// TestWrongPromptEstimatesCostLittleGoodput: with estimates of prompt lengths up to 17 % off, predictive loses less
// than 3 % of its goodput with exact ones. The cached tokens that an engine reports are in the engine's count.
func TestWrongPromptEstimatesCostLittleGoodput(t *testing.T) {
	good := func(estimateError float64) (sum float64) {
		for seed := range uint64(3) {
			r := runScenario(t, agentsScenario(seed+1, estimateError))
			sum += float64(r.Good)
			p99, _ := r.TTFT.Quantile(.99)
			t.Logf("error %.2f, seed %d: %d of %d good, hit rate %.3f, p99 %v", estimateError, seed+1, r.Good, r.All.Sent, r.HitRate, p99)
		}
		return sum
	}
	exact, off := good(0), good(0.17)
	t.Logf("goodput with estimates 17 %% off is %.3f of that with exact ones", off/exact)
	if off < 0.97*exact {
		t.Errorf("goodput with estimates 17 %% off is %.3f of that with exact ones, want 0.97 and more", off/exact)
	}
}

// TestEstimateErrorIsUnbiasedAndBounded: the factor is log-uniform within its bounds, and 0 changes no result.
func TestEstimateErrorIsUnbiasedAndBounded(t *testing.T) {
	s := Scenario{EstimateError: 0.25, Seed: 9}
	reader := &requestReader{scenario: &s}
	sum, low, high := 0.0, math.Inf(1), 0.0
	const n = 10_000
	for id := range uint64(n) {
		f := float64(reader.estimatePromptTokens(&load.Request{ID: id + 1, PromptTokens: 1_000_000})) / 1_000_000
		sum, low, high = sum+math.Log(f), min(low, f), max(high, f)
	}
	if low < 0.799 || high > 1.251 || low > 0.81 || high < 1.24 || math.Abs(sum/n) > 0.005 {
		t.Errorf("factors %.3f to %.3f, mean of their logarithms %.4f", low, high, sum/n)
	}
	plain, zero := chatScenario(t, 3, 6, 4), chatScenario(t, 3, 6, 4)
	zero.EstimateError = 0
	plain.Duration, zero.Duration = 20*time.Second, 20*time.Second
	a, _ := json.Marshal(runScenario(t, plain))
	b, _ := json.Marshal(runScenario(t, zero))
	other := chatScenario(t, 3, 6, 4)
	other.Duration, other.EstimateError = 20*time.Second, 0.5
	c, _ := json.Marshal(runScenario(t, other))
	if !bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Error("an error of 0 changes the output, or one of 0.5 does not")
	}
	for _, e := range []float64{-0.1, 9.5, math.NaN()} {
		s := chatScenario(t, 1, 1, 1)
		if s.EstimateError = e; s.checkScenario() == nil {
			t.Errorf("an estimate error of %v is taken", e)
		}
	}
}
