package gpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// engineZone is sixteen engines and requests like the long chats of the public trace: 7,000 tokens at the median,
// many of them continuing an earlier one.
type engineZone struct {
	engines       []*Engine
	rng           *rand.Rand
	now           time.Time
	conversations [][]Piece // of conversations
	requestRate   float64
	steps         uint64
}

func newEngineZone(b *testing.B, rate float64) *engineZone {
	z := &engineZone{rng: rand.New(rand.NewPCG(1, 2)), now: epoch, requestRate: rate, conversations: make([][]Piece, 800)}
	for i := range 16 {
		e := newEngine(b, EngineConfig{Profile: lookupProfile(b, "H100", "Llama-3.1-8B", 1), FastForward: true, Salt: uint64(i), Rand: rand.New(rand.NewPCG(uint64(i), 0))})
		z.engines = append(z.engines, e)
	}
	return z
}

// submitNext submits the next request to the engine of its conversation.
func (z *engineZone) submitNext(b *testing.B) {
	z.advanceTo(z.now.Add(time.Duration(z.rng.ExpFloat64() / z.requestRate * float64(time.Second))))
	who := z.rng.IntN(len(z.conversations))
	text := z.conversations[who]
	if len(text) > 6 || len(text) == 0 {
		text = append(text[:0], Piece{ID: 1, Tokens: 512}, Piece{ID: z.rng.Uint64(), Tokens: int(min(5000*math.Exp(z.rng.NormFloat64()), 60_000))})
	} else {
		text = append(text, Piece{ID: z.rng.Uint64(), Tokens: 350}, Piece{ID: z.rng.Uint64(), Tokens: 200 + z.rng.IntN(1500)})
	}
	z.conversations[who] = text
	submitRequest(b, z.engines[who%len(z.engines)], z.now, EngineRequest{Prompt: text, PromptTokens: CountTokens(text), OutputTokens: 350})
}

func (z *engineZone) advanceTo(now time.Time) {
	for _, e := range z.engines {
		for next, ok := e.NextEvent(); ok && !next.After(now); next, ok = e.NextEvent() {
			for _, s := range e.AdvanceTo(next) {
				if s.IsDone() {
					e.RecycleSequence(s)
				}
			}
			z.steps++
		}
	}
	z.now = now
}

// BenchmarkZone is the engines' part of simulating a zone of sixteen workers: one operation is one request. Requests
// per second are relative to CPU time, so that a busy machine gives the same result.
func BenchmarkZone(b *testing.B) {
	for name, rate := range map[string]float64{"half": 30, "nine tenths": 55} {
		b.Run(name, func(b *testing.B) {
			z := newEngineZone(b, rate)
			for range 4000 {
				z.submitNext(b)
			}
			events, spent := z.steps, testkit.CPUTime()
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				z.submitNext(b)
			}
			b.ReportMetric(float64(b.N)/(testkit.CPUTime()-spent).Seconds(), "requests/s/core")
			b.ReportMetric(float64(z.steps-events)/float64(b.N), "events/request")
			running := 0
			for _, e := range z.engines {
				running += e.Gauges().Running + e.Gauges().Waiting
			}
			b.ReportMetric(float64(running)/16, "running")
		})
	}
}
