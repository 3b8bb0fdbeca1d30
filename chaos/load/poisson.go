package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Lengths is a distribution of token counts: lognormal through its median and its 90th percentile, or always the
// median when P90 is not above it.
type Lengths struct {
	Median, P90 int
	// Max cuts what is longer. 0 means no bound.
	Max int
}

// z90 is the standard normal's 90th percentile.
const z90 = 1.2815515655446004

func (l Lengths) draw(rng *rand.Rand) int {
	n := l.Median
	if l.P90 > l.Median {
		sigma := math.Log(float64(l.P90)/float64(l.Median)) / z90
		n = int(math.Round(float64(l.Median) * math.Exp(sigma*rng.NormFloat64())))
	}
	if l.Max > 0 {
		n = min(n, l.Max)
	}
	return max(n, 1)
}

// Poisson describes requests that arrive independently of each other.
type Poisson struct {
	// Rate is arrivals per second, on average.
	Rate float64
	// For ends the process. 0 means never.
	For time.Duration
	// Prompt and Output are lengths in tokens.
	Prompt, Output Lengths
	// Groups is how many shared prefixes there are; each request begins with one of them. 0 means none.
	Groups int
	// PrefixTokens is how long each shared prefix is; it counts as part of the prompt's length.
	PrefixTokens int
	// Seed makes the process repeatable.
	Seed uint64
}

// NewPoisson checks the description and returns the source.
func NewPoisson(p Poisson) (Source, error) {
	switch {
	case !(p.Rate > 0) || p.Rate > 1e6:
		return nil, fmt.Errorf("rate %v: use more than 0 and at most a million requests per second", p.Rate)
	case p.Prompt.Median < 1 || p.Output.Median < 1:
		return nil, errors.New("lengths: prompt and output need a median of at least one token")
	case p.Groups < 0 || p.PrefixTokens < 0:
		return nil, errors.New("prefixes: groups and tokens cannot be negative")
	}
	var s Source = &poisson{p: p, rng: rand.New(rand.NewPCG(p.Seed, 0x10ad))}
	if p.For > 0 {
		s = Scaled(s, Scale{For: p.For})
	}
	return s, nil
}

type poisson struct {
	p   Poisson
	rng *rand.Rand
	at  time.Duration
	n   uint64
}

func (s *poisson) Next() (Arrival, error) {
	s.at += time.Duration(s.rng.ExpFloat64() / s.p.Rate * float64(time.Second))
	s.n++
	a := Arrival{At: s.at, Output: s.p.Output.draw(s.rng)}
	own := s.p.Prompt.draw(s.rng)
	if s.p.Groups > 0 && s.p.PrefixTokens > 0 {
		shared := min(s.p.PrefixTokens, own-1)
		if shared > 0 {
			a.Prompt = append(a.Prompt, Piece{ID: mix(uint64(s.rng.IntN(s.p.Groups))), Tokens: shared})
			own -= shared
		}
	}
	a.Prompt = append(a.Prompt, Piece{ID: mix(s.p.Seed ^ mix(s.n)), Tokens: own})
	return a, nil
}
