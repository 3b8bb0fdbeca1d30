package load

import (
	"io"
	"math"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

// Piece is a part of a prompt; equal IDs mean equal text.
type Piece = gpu.Piece

// Arrival is one request to send.
type Arrival struct {
	// At is when it is due, from the start of the run.
	At time.Duration
	// Prompt is its text, in pieces: equal pieces from the first on are a shared prefix.
	Prompt []Piece
	// Output is the number of tokens to request.
	Output int
	// Session is equal for the requests of one conversation; 0 if the source does not know it.
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

// ArrivalSource yields arrivals in order of time. The error is io.EOF after the last one. It is used by one
// goroutine.
type ArrivalSource interface {
	NextArrival() (Arrival, error)
}

// Scale adapts a source to the system under test.
type Scale struct {
	// Rate multiplies the rate of arrivals. 0 means 1.
	Rate float64
	// Tokens multiplies lengths of prompts and outputs, with a minimum of one token. 0 means 1.
	Tokens float64
	// MaxPrompt and MaxOutput truncate longer ones, in tokens. 0 means no bound.
	MaxPrompt, MaxOutput int
	// For ends the source, in time of the run. 0 means at the source's own end.
	For time.Duration
}

// ScaleSource applies a scale to a source.
func ScaleSource(s ArrivalSource, by Scale) ArrivalSource { return &scaledSource{source: s, scale: by} }

type scaledSource struct {
	source ArrivalSource
	scale  Scale
}

func (s *scaledSource) NextArrival() (Arrival, error) {
	a, err := s.source.NextArrival()
	if err != nil {
		return a, err
	}
	if s.scale.Rate > 0 {
		a.At = time.Duration(float64(a.At) / s.scale.Rate)
	}
	if s.scale.For > 0 && a.At > s.scale.For {
		return Arrival{}, io.EOF
	}
	room := s.scale.MaxPrompt
	if room <= 0 {
		room = math.MaxInt
	}
	kept := a.Prompt[:0]
	for _, p := range a.Prompt {
		if p.Tokens = min(s.scaleTokens(p.Tokens), room); p.Tokens > 0 {
			kept = append(kept, p)
		}
		room -= p.Tokens
	}
	a.Prompt, a.Output = kept, s.scaleTokens(a.Output)
	if s.scale.MaxOutput > 0 {
		a.Output = min(a.Output, s.scale.MaxOutput)
	}
	return a, nil
}

func (s *scaledSource) scaleTokens(n int) int {
	if s.scale.Tokens <= 0 {
		return n
	}
	return max(1, int(math.Round(float64(n)*s.scale.Tokens)))
}

// mixBits is the finalizer of splitmix64: it spreads counters over all 64 bits.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
