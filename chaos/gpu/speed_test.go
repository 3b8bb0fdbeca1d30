package gpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// zoneBench is sixteen engines and requests like the long chats of the public trace: 7,000 tokens by the median, many of
// them going on with an earlier one.
type zoneBench struct {
	engines []*Engine
	rng     *rand.Rand
	now     time.Time
	texts   [][]Piece // of conversations
	rate    float64
	steps   uint64
}

func newZoneBench(b *testing.B, rate float64) *zoneBench {
	z := &zoneBench{rng: rand.New(rand.NewPCG(1, 2)), now: epoch, rate: rate, texts: make([][]Piece, 800)}
	for i := range 16 {
		e := newEngine(b, EngineConfig{Profile: lookup(b, "H100", "Llama-3.1-8B", 1), FastForward: true, Salt: uint64(i), Rand: rand.New(rand.NewPCG(uint64(i), 0))})
		z.engines = append(z.engines, e)
	}
	return z
}

// arrive submits the next request where its conversation went before.
func (z *zoneBench) arrive(b *testing.B) {
	z.until(z.now.Add(time.Duration(z.rng.ExpFloat64() / z.rate * float64(time.Second))))
	who := z.rng.IntN(len(z.texts))
	text := z.texts[who]
	if len(text) > 6 || len(text) == 0 {
		text = append(text[:0], Piece{ID: 1, Tokens: 512}, Piece{ID: z.rng.Uint64(), Tokens: int(min(5000*math.Exp(z.rng.NormFloat64()), 60_000))})
	} else {
		text = append(text, Piece{ID: z.rng.Uint64(), Tokens: 350}, Piece{ID: z.rng.Uint64(), Tokens: 200 + z.rng.IntN(1500)})
	}
	z.texts[who] = text
	submit(b, z.engines[who%len(z.engines)], z.now, Request{Prompt: text, PromptTokens: Tokens(text), OutputTokens: 350})
}

func (z *zoneBench) until(now time.Time) {
	for _, e := range z.engines {
		for next, ok := e.Next(); ok && !next.After(now); next, ok = e.Next() {
			for _, s := range e.Advance(next) {
				if s.Done() {
					e.Reuse(s)
				}
			}
			z.steps++
		}
	}
	z.now = now
}

// BenchmarkZone is the engines' part of simulating a zone of sixteen workers: one operation is one request. Requests per
// second count the processor's time, so that a busy machine says the same.
func BenchmarkZone(b *testing.B) {
	for name, rate := range map[string]float64{"half": 30, "nine tenths": 55} {
		b.Run(name, func(b *testing.B) {
			z := newZoneBench(b, rate)
			for range 4000 {
				z.arrive(b)
			}
			events, spent := z.steps, cpuTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				z.arrive(b)
			}
			b.ReportMetric(float64(b.N)/(cpuTime(b)-spent).Seconds(), "requests/s/core")
			b.ReportMetric(float64(z.steps-events)/float64(b.N), "events/request")
			running := 0
			for _, e := range z.engines {
				running += e.Gauges().Running + e.Gauges().Waiting
			}
			b.ReportMetric(float64(running)/16, "running")
		})
	}
}
