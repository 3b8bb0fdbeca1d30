package virtual

import (
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/load"
)

// Tenants of a drill's load, by index.
var tenantNames = []string{"acme", "nightly"}

// modelNames are the models of a fleet, by index; requests choose among them with equal probability.
var modelNames = []string{"Llama-3.1-8B", "Qwen2.5-7B"}

// p90Factor is the 90th percentile of lengths over their median.
const p90Factor = 3

// tailFactor bounds lengths, as a multiple of the median.
const tailFactor = 8

// Arrivals is the load of a drill: an independent stream for each tenant and surge, merged by time. It is the same for the
// simulator and for a fleet of processes.
type Arrivals struct {
	file    *drill.DrillFile
	streams []*arrivalStream
	rng     *rand.Rand
	regions int
	issued  uint64
}

// arrivalStream is one stream of arrivals of a tenant, from a time to another.
type arrivalStream struct {
	source   load.ArrivalSource
	from, to time.Duration
	tenant   int32
	next     load.Arrival
	done     bool
}

// NewArrivals returns the load of a drill for a seed.
func NewArrivals(f *drill.DrillFile, seed uint64) (*Arrivals, error) {
	a := &Arrivals{file: f, rng: rand.New(rand.NewPCG(seed, f.Load.Seed<<8|0xd1)), regions: f.Layout().Regions}
	share := []float64{1 - f.Load.Nightly, f.Load.Nightly}
	for t := range tenantNames {
		if err := a.addStream(int32(t), f.Load.Rate*share[t], 0, f.Load.Duration, seed); err != nil {
			return nil, err
		}
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Kind != drill.SurgeKind {
			continue
		}
		factor, err := strconv.ParseFloat(cmpOr(s.Params["factor"], "4"), 64)
		if err != nil {
			return nil, err
		}
		for t, name := range tenantNames {
			if name != s.Target {
				continue
			}
			if err := a.addStream(int32(t), f.Load.Rate*share[t]*(factor-1), s.At, s.End(), seed^uint64(i+1)<<32); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

func (a *Arrivals) addStream(tenant int32, rate float64, from, to time.Duration, seed uint64) error {
	if rate <= 0 {
		return nil
	}
	l := &a.file.Load
	lengths := func(median int) load.LengthDist {
		return load.LengthDist{Median: median, P90: median * p90Factor, Max: median * tailFactor}
	}
	source, err := load.NewPoissonSource(load.PoissonConfig{
		Rate: rate, Prompt: lengths(l.PromptTokens), Output: lengths(l.AnswerTokens), Groups: l.Prefixes, PrefixTokens: l.PrefixTokens,
		Seed: seed*1_000_003 + l.Seed*1009 + uint64(tenant)*31 + uint64(from),
	})
	if err != nil {
		return err
	}
	s := &arrivalStream{source: source, from: from, to: to, tenant: tenant}
	a.streams = append(a.streams, s)
	return s.advance()
}

// advance reads the stream's next arrival.
func (s *arrivalStream) advance() error {
	n, err := s.source.NextArrival()
	if errors.Is(err, io.EOF) {
		s.done = true
		return nil
	}
	n.At += s.from
	s.next, s.done = n, n.At >= s.to
	return err
}

// earliest is the stream with the next arrival; nil at the end.
func (a *Arrivals) earliest() (best *arrivalStream) {
	for _, s := range a.streams {
		if !s.done && (best == nil || s.next.At < best.next.At) {
			best = s
		}
	}
	return best
}

// NextRequest returns the next request; io.EOF after the last one.
func (a *Arrivals) NextRequest() (*load.Request, error) {
	s := a.earliest()
	if s == nil {
		return nil, io.EOF
	}
	n := s.next
	if err := s.advance(); err != nil {
		return nil, err
	}
	a.issued++
	return &load.Request{
		At: n.At, ID: a.issued, Region: int32(a.rng.IntN(a.regions)), Tenant: s.tenant, Model: int32(a.rng.IntN(len(modelNames))), Session: a.issued,
		Prompt: n.Prompt, PromptTokens: n.PromptTokens(), Output: n.Output,
	}, nil
}
