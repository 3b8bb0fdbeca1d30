package load

import (
	"io"
	"math"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

// Piece is a part of a prompt that is the same text wherever its ID is the same.
type Piece = gpu.Piece

// Arrival is one request to send.
type Arrival struct {
	// At is when it is due, from the start of the run.
	At time.Duration
	// Prompt is its text, in pieces: equal pieces from the first on are a shared prefix.
	Prompt []Piece
	// Output is how many tokens to ask for.
	Output int
	// Session is equal for what seems to be one conversation; 0 where the source cannot tell.
	Session uint64
}

// PromptTokens returns the prompt's length.
func (a *Arrival) PromptTokens() int {
	n := 0
	for _, p := range a.Prompt {
		n += p.Tokens
	}
	return n
}

// Source yields arrivals in order of time. The error is io.EOF after the last one. It is used by one goroutine.
type Source interface {
	Next() (Arrival, error)
}

// Scale fits a source to the system under test.
type Scale struct {
	// Rate multiplies the rate of arrivals by squeezing time. 0 means 1.
	Rate float64
	// Tokens multiplies lengths of prompts and outputs; nothing becomes shorter than one token. 0 means 1.
	Tokens float64
	// MaxPrompt and MaxOutput cut what is longer, in tokens. 0 means no bound.
	MaxPrompt, MaxOutput int
	// For ends the source, in time of the run. 0 means when the source itself ends.
	For time.Duration
}

// Scaled plays a source through a scale.
func Scaled(s Source, by Scale) Source { return &scaled{source: s, by: by} }

type scaled struct {
	source Source
	by     Scale
}

func (s *scaled) Next() (Arrival, error) {
	a, err := s.source.Next()
	if err != nil {
		return a, err
	}
	if s.by.Rate > 0 {
		a.At = time.Duration(float64(a.At) / s.by.Rate)
	}
	if s.by.For > 0 && a.At > s.by.For {
		return Arrival{}, io.EOF
	}
	room := s.by.MaxPrompt
	if room <= 0 {
		room = math.MaxInt
	}
	kept := a.Prompt[:0]
	for _, p := range a.Prompt {
		if p.Tokens = min(s.tokens(p.Tokens), room); p.Tokens > 0 {
			kept = append(kept, p)
		}
		room -= p.Tokens
	}
	a.Prompt, a.Output = kept, s.tokens(a.Output)
	if s.by.MaxOutput > 0 {
		a.Output = min(a.Output, s.by.MaxOutput)
	}
	return a, nil
}

func (s *scaled) tokens(n int) int {
	if s.by.Tokens <= 0 {
		return n
	}
	return max(1, int(math.Round(float64(n)*s.by.Tokens)))
}

// mix is the finaliser of splitmix64: it spreads counters over all 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
