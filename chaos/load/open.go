package load

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// stream is an open loop: requests arrive one by one at a rate that may change, whatever becomes of them.
type stream struct {
	w    *Workload
	rng  *rand.Rand
	at   time.Duration
	n    uint64
	peak float64                        // highest requests per second
	rate func(at time.Duration) float64 // requests per second at a time; nil: always the highest
	make func(s *stream) *Request
}

func (w *Workload) stream(peak float64, rate func(time.Duration) float64, make func(*stream) *Request) *stream {
	return &stream{w: w, rng: rand.New(rand.NewPCG(w.Seed, 0x57ea)), peak: peak, rate: rate, make: make}
}

// Next draws the next arrival of a Poisson process whose rate may change, by leaving out what is above the rate.
func (s *stream) Next() (*Request, error) {
	for {
		if s.at += time.Duration(s.rng.ExpFloat64() / s.peak * float64(time.Second)); s.at < 0 {
			return nil, io.EOF // 292 years
		}
		if s.rate != nil && s.rng.Float64()*s.peak >= s.rate(s.at) {
			continue
		}
		s.n++
		r := s.make(s)
		r.At = s.at
		r.PromptTokens = promptTokens(r.Prompt)
		if r.Session == 0 {
			r.Session = s.name()
		}
		r.Region = s.w.region(r.Session)
		s.w.cap(r)
		return r, nil
	}
}

// name is the request's own.
func (s *stream) name() uint64 { return mix(s.w.Seed ^ mix(s.n|1<<56)) }

func (s *stream) own(tokens int) Piece { return Piece{ID: mix(s.name()), Tokens: tokens} }

const (
	saasGroups   = 150
	saasPrompts  = 5 // of each group
	saasSystem   = 6000
	saasQuestion = 1200
	saasOutput   = 1000
)

// saas is prompts that share a customer's system prompt: 150 groups of 5 prompts, gone through in an order that the seed
// decides, again and again; 6,000 tokens are a group's, 1,200 a question's, and an answer has 1,000.
func (w *Workload) saas() (Roots, error) {
	groups := cmp.Or(w.Sessions, saasGroups)
	if groups > 1_000_000 {
		return nil, fmt.Errorf("sessions %d: use at most a million groups", groups)
	}
	order := rand.New(rand.NewPCG(w.Seed, 0x5aa5)).Perm(groups * saasPrompts)
	return w.stream(cmp.Or(w.Rate, 3), nil, func(s *stream) *Request {
		i := order[int(s.n-1)%len(order)]
		group := mix(w.Seed ^ mix(uint64(i/saasPrompts)|1<<55))
		return &Request{
			Session: group, Tenant: int32(i / saasPrompts), Output: saasOutput,
			Prompt: []Piece{{ID: group, Tokens: saasSystem}, {ID: mix(group ^ mix(uint64(i%saasPrompts)+1)), Tokens: saasQuestion}},
		}
	}), nil
}

// reasoning is short questions with long answers: 1,250 tokens in and 8,000 out by the mean, 32,000 at the most.
func (w *Workload) reasoning() (Roots, error) {
	in, out := Lengths{Median: 1000, P90: 2300, Max: 8000}, Lengths{Median: 5800, P90: 17_500, Max: 32_000}
	return w.stream(cmp.Or(w.Rate, 2), nil, func(s *stream) *Request {
		return &Request{Prompt: []Piece{s.own(in.draw(s.rng))}, Output: out.draw(s.rng)}
	}), nil
}

// Lengths of an adversary's requests: those of the Azure conversations.
var (
	adverseIn  = Lengths{Median: 1020, P90: 2734, Max: 8000}
	adverseOut = Lengths{Median: 129, P90: 424, Max: 1200}
)

const (
	// hotPart is the part of the requests that begin with the hot prefix, and hotTokens its length.
	hotPart, hotTokens = 0.45, 4000
	// coldFamilies is how many other prefixes there are.
	coldFamilies = 60
	// greedyPart is one client's part of all requests; the others are so many.
	greedyPart, others = 0.52, 99
	// burstFactor is how much more comes in a burst, which lasts burstFor, once in burstEvery.
	burstFactor          = 13
	burstFor, burstEvery = 10 * time.Second, 2 * time.Minute
	// peakFactor is the common peak of all regions, in the middle third of every peakEvery.
	peakFactor = 3
	peakEvery  = 6 * time.Minute
)

// adverse is what a router finds hard, by variant: hot, peak, greedy or burst.
func (w *Workload) adverse() (Roots, error) {
	rate := cmp.Or(w.Rate, 10)
	plain := func(s *stream) *Request {
		return &Request{Prompt: []Piece{s.own(adverseIn.draw(s.rng))}, Output: adverseOut.draw(s.rng), Tenant: int32(s.rng.IntN(others + 1))}
	}
	switch w.Variant {
	case "", "hot":
		return w.stream(rate, nil, w.hot), nil
	case "peak":
		mean := 1 + (peakFactor-1)/3.0
		return w.stream(rate/mean*peakFactor, func(at time.Duration) float64 {
			if x := at % peakEvery; x >= peakEvery/3 && x < peakEvery*2/3 {
				return rate / mean * peakFactor
			}
			return rate / mean
		}, plain), nil
	case "greedy":
		return w.stream(rate, nil, func(s *stream) *Request {
			r := plain(s)
			r.Tenant = 0
			if s.rng.Float64() >= greedyPart {
				r.Tenant = 1 + int32(s.rng.IntN(others))
			}
			return r
		}), nil
	case "burst":
		mean := 1 + (burstFactor-1)*burstFor.Seconds()/burstEvery.Seconds()
		return w.stream(rate/mean*burstFactor, func(at time.Duration) float64 {
			if x := at % burstEvery; x >= burstEvery/2 && x < burstEvery/2+burstFor {
				return rate / mean * burstFactor
			}
			return rate / mean
		}, plain), nil
	}
	return nil, fmt.Errorf("variant %q: use hot, peak, greedy or burst", w.Variant)
}

// hot gives one prefix nearly half of all requests: more than the part of the replicas that a cache-aware policy lets
// hold it, where others have prefixes of their own.
func (w *Workload) hot(s *stream) *Request {
	family := uint64(0)
	if s.rng.Float64() >= hotPart {
		family = 1 + uint64(s.rng.IntN(coldFamilies))
	}
	return &Request{
		Tenant: int32(family), Output: adverseOut.draw(s.rng),
		Prompt: []Piece{{ID: mix(w.Seed ^ mix(family|1<<54)), Tokens: hotTokens}, s.own(adverseIn.draw(s.rng))},
	}
}
