package load

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// openLoop is an open loop: requests arrive one by one at a rate that may vary, independent of answers.
type openLoop struct {
	workload    *Workload
	rng         *rand.Rand
	at          time.Duration
	count       uint64
	peakRate    float64                        // maximum requests per second
	rateAt      func(at time.Duration) float64 // requests per second at a time; nil: always the maximum
	makeRequest func(s *openLoop) *Request
}

func (w *Workload) newOpenLoop(peak float64, rate func(time.Duration) float64, make func(*openLoop) *Request) *openLoop {
	return &openLoop{workload: w, rng: rand.New(rand.NewPCG(w.Seed, 0x57ea)), peakRate: peak, rateAt: rate, makeRequest: make}
}

// NextRequest draws the next arrival of a Poisson process with a variable rate, by thinning.
func (s *openLoop) NextRequest() (*Request, error) {
	for {
		if s.at += time.Duration(s.rng.ExpFloat64() / s.peakRate * float64(time.Second)); s.at < 0 {
			return nil, io.EOF // 292 years
		}
		if s.rateAt != nil && s.rng.Float64()*s.peakRate >= s.rateAt(s.at) {
			continue
		}
		s.count++
		r := s.makeRequest(s)
		r.At = s.at
		r.PromptTokens = countPromptTokens(r.Prompt)
		if r.Session == 0 {
			r.Session = s.requestID()
		}
		r.Region = s.workload.regionOfSession(r.Session)
		s.workload.capLengths(r)
		return r, nil
	}
}

// requestID is the ID of the current request.
func (s *openLoop) requestID() uint64 { return mixBits(s.workload.Seed ^ mixBits(s.count|1<<56)) }

func (s *openLoop) uniquePiece(tokens int) Piece {
	return Piece{ID: mixBits(s.requestID()), Tokens: tokens}
}

const (
	saasGroups         = 150
	saasGroupPrompts   = 5 // per group
	saasSystemTokens   = 6000
	saasQuestionTokens = 1200
	saasOutputTokens   = 1000
)

// openSaaS is prompts that share a customer's system prompt: 150 groups of 5 prompts, played repeatedly in an order
// drawn by the seed; 6,000 tokens of the group, 1,200 of the question, and 1,000 of the answer.
func (w *Workload) openSaaS() (RootSource, error) {
	groups := cmp.Or(w.Sessions, saasGroups)
	if groups > 1_000_000 {
		return nil, fmt.Errorf("sessions %d: use at most a million groups", groups)
	}
	order := rand.New(rand.NewPCG(w.Seed, 0x5aa5)).Perm(groups * saasGroupPrompts)
	return w.newOpenLoop(cmp.Or(w.Rate, 3), nil, func(s *openLoop) *Request {
		i := order[int(s.count-1)%len(order)]
		group := mixBits(w.Seed ^ mixBits(uint64(i/saasGroupPrompts)|1<<55))
		return &Request{
			Session: group, Tenant: int32(i / saasGroupPrompts), Output: saasOutputTokens,
			Prompt: []Piece{{ID: group, Tokens: saasSystemTokens}, {ID: mixBits(group ^ mixBits(uint64(i%saasGroupPrompts)+1)), Tokens: saasQuestionTokens}},
		}
	}), nil
}

// openReasoning is short questions with long answers: 1,250 tokens in and 8,000 out on average, 32,000 at most.
func (w *Workload) openReasoning() (RootSource, error) {
	in, out := LengthDist{Median: 1000, P90: 2300, Max: 8000}, LengthDist{Median: 5800, P90: 17_500, Max: 32_000}
	return w.newOpenLoop(cmp.Or(w.Rate, 2), nil, func(s *openLoop) *Request {
		return &Request{Prompt: []Piece{s.uniquePiece(in.drawLength(s.rng))}, Output: out.drawLength(s.rng)}
	}), nil
}

// Lengths of the adversarial requests: those of the Azure conversations.
var (
	adversaryPrompt = LengthDist{Median: 1020, P90: 2734, Max: 8000}
	adversaryOutput = LengthDist{Median: 129, P90: 424, Max: 1200}
)

const (
	// hotShare is the fraction of requests that begin with the hot prefix, and hotPrefixTokens its length.
	hotShare, hotPrefixTokens = 0.45, 4000
	// coldPrefixCount is the number of other prefixes.
	coldPrefixCount = 60
	// greedyShare is one client's fraction of all requests; otherClients is the number of the others.
	greedyShare, otherClients = 0.52, 99
	// burstFactor is the rate in a burst relative to normal; a burst lasts burstDuration, once per burstPeriod.
	burstFactor                = 13
	burstDuration, burstPeriod = 10 * time.Second, 2 * time.Minute
	// peakFactor is the common peak of all regions, in the middle third of every peakPeriod.
	peakFactor = 3
	peakPeriod = 6 * time.Minute
)

// openAdversary is workloads that are hard for a router, by variant: hot, peak, greedy or burst.
func (w *Workload) openAdversary() (RootSource, error) {
	rate := cmp.Or(w.Rate, 10)
	plain := func(s *openLoop) *Request {
		return &Request{Prompt: []Piece{s.uniquePiece(adversaryPrompt.drawLength(s.rng))}, Output: adversaryOutput.drawLength(s.rng), Tenant: int32(s.rng.IntN(otherClients + 1))}
	}
	switch w.Variant {
	case "", "hot":
		return w.newOpenLoop(rate, nil, w.makeHotRequest), nil
	case "peak":
		mean := 1 + (peakFactor-1)/3.0
		return w.newOpenLoop(rate/mean*peakFactor, func(at time.Duration) float64 {
			if x := at % peakPeriod; x >= peakPeriod/3 && x < peakPeriod*2/3 {
				return rate / mean * peakFactor
			}
			return rate / mean
		}, plain), nil
	case "greedy":
		return w.newOpenLoop(rate, nil, func(s *openLoop) *Request {
			r := plain(s)
			r.Tenant = 0
			if s.rng.Float64() >= greedyShare {
				r.Tenant = 1 + int32(s.rng.IntN(otherClients))
			}
			return r
		}), nil
	case "burst":
		mean := 1 + (burstFactor-1)*burstDuration.Seconds()/burstPeriod.Seconds()
		return w.newOpenLoop(rate/mean*burstFactor, func(at time.Duration) float64 {
			if x := at % burstPeriod; x >= burstPeriod/2 && x < burstPeriod/2+burstDuration {
				return rate / mean * burstFactor
			}
			return rate / mean
		}, plain), nil
	}
	return nil, fmt.Errorf("variant %q: use hot, peak, greedy or burst", w.Variant)
}

// makeHotRequest uses one prefix for nearly half of all requests: more than the share of replicas that a cache-aware
// policy lets it occupy, while other requests have prefixes of their own.
func (w *Workload) makeHotRequest(s *openLoop) *Request {
	family := uint64(0)
	if s.rng.Float64() >= hotShare {
		family = 1 + uint64(s.rng.IntN(coldPrefixCount))
	}
	return &Request{
		Tenant: int32(family), Output: adversaryOutput.drawLength(s.rng),
		Prompt: []Piece{{ID: mixBits(w.Seed ^ mixBits(family|1<<54)), Tokens: hotPrefixTokens}, s.uniquePiece(adversaryPrompt.drawLength(s.rng))},
	}
}
