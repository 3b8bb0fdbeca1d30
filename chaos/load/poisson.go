package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// LengthDist is a distribution of token counts: lognormal with the given median and 90th percentile, or constant if
// P90 is not above the median.
type LengthDist struct {
	Median, P90 int
	// Max truncates longer ones. 0 means no bound.
	Max int
}

// z90 is the standard normal's 90th percentile.
const z90 = 1.2815515655446004

func (l LengthDist) drawLength(rng *rand.Rand) int {
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

// PoissonConfig describes independent arrivals.
type PoissonConfig struct {
	// Rate is arrivals per second, on average.
	Rate float64
	// For ends the process. 0 means never.
	For time.Duration
	// Prompt and Output are lengths in tokens.
	Prompt, Output LengthDist
	// Groups is the number of shared prefixes; each request begins with one of them. 0 means none.
	Groups int
	// PrefixTokens is the length of each shared prefix; it is part of the prompt's length.
	PrefixTokens int
	// Seed makes the process repeatable.
	Seed uint64
}

// NewPoissonSource checks the configuration and returns the source.
func NewPoissonSource(p PoissonConfig) (ArrivalSource, error) {
	switch {
	case !(p.Rate > 0) || p.Rate > 1e6:
		return nil, fmt.Errorf("rate %v: use more than 0 and at most a million requests per second", p.Rate)
	case p.Prompt.Median < 1 || p.Output.Median < 1:
		return nil, errors.New("lengths: prompt and output need a median of at least one token")
	case p.Groups < 0 || p.PrefixTokens < 0:
		return nil, errors.New("prefixes: groups and tokens cannot be negative")
	}
	var s ArrivalSource = &poissonSource{config: p, rng: rand.New(rand.NewPCG(p.Seed, 0x10ad))}
	if p.For > 0 {
		s = ScaleSource(s, Scale{For: p.For})
	}
	return s, nil
}

type poissonSource struct {
	config PoissonConfig
	rng    *rand.Rand
	at     time.Duration
	count  uint64
}

func (s *poissonSource) NextArrival() (Arrival, error) {
	s.at += time.Duration(s.rng.ExpFloat64() / s.config.Rate * float64(time.Second))
	s.count++
	a := Arrival{At: s.at, Output: s.config.Output.drawLength(s.rng)}
	own := s.config.Prompt.drawLength(s.rng)
	if s.config.Groups > 0 && s.config.PrefixTokens > 0 {
		shared := min(s.config.PrefixTokens, own-1)
		if shared > 0 {
			a.Prompt = append(a.Prompt, Piece{ID: mixBits(uint64(s.rng.IntN(s.config.Groups))), Tokens: shared})
			own -= shared
		}
	}
	a.Prompt = append(a.Prompt, Piece{ID: mixBits(s.config.Seed ^ mixBits(s.count)), Tokens: own})
	return a, nil
}
