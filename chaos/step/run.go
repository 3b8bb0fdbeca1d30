package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/world"
)

const (
	regions = 3
	// low and high are what clients of the first place ask, over what its region can do; others is what other places ask.
	low, high, others = 0.7, 1.3, 0.4
	// warm is how long demand is low before it rises.
	warm = 120 * time.Second
	// Late is the target time to first token that the spec has by default for the class of these requests.
	Late = 2 * time.Second
)

// Options of a run.
type Options struct {
	TTL       time.Duration
	Resolvers int           // of the first place
	Poisson   bool          // arrivals are independent of each other instead of evenly spaced
	Zipf      bool          // demand by resolver falls as 1/n instead of being equal
	Extend    bool          // some resolvers keep answers for longer than they may
	Redirect  float64       // part of the requests that go by a redirect instead of a DNS answer
	For       time.Duration // after the step
	Prompt    int           // tokens, on average: each has half as many to half as many more
	Output    int           // tokens
	Workers   []int         // by region
	Steering  string        // what the spec says under that key
	Log       *slog.Logger  // receives the nodes' own; nil discards it
	Dir       string        // for certificates
	Seed      uint64
}

// Result of a run.
type Result struct {
	Near    Measure // the first region by its resolvers' answers
	Served  Measure // the same by where requests were served, over 10 s
	Far     float64 // the highest load of any other region, by answers
	Plans   int     // that the step took
	Once    float64 // part of the place's resolvers that moved after the step
	Again   float64 // and of those that moved more than once
	Sent    int     // requests after the step
	Shed    int     // refused or failed
	Late    int     // begun to be answered after the target
	Wrong   int     // DNS answers that were none, or named no region
	Answers []Series
	Live    bool // of a planet that runs: what only the lab can see is missing
}

// run is one experiment under way.
type run struct {
	o      *Options
	planet *world.Planet
	crowd  *crowd
	caller *world.Caller
	rate   float64 // requests/s that a worker can do
	begun  time.Time
	flying sync.WaitGroup

	mu     sync.Mutex
	res    Result
	served []float64 // requests by second that the first region took
}

// Run makes a planet, applies the step to it, and says what came of it. It is to be called in a bubble.
func Run(ctx context.Context, o Options) (*Result, error) {
	x := &run{o: &o}
	var err error
	if x.rate, err = world.Rate(o.Prompt, o.Output); err != nil {
		return nil, err
	}
	x.planet, err = world.New(ctx, world.Config{
		Dir: o.Dir, Globals: 3, Regions: world.Three(o.Workers...), TTL: o.TTL, Steering: o.Steering, Seed: o.Seed, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	x.caller = x.planet.Caller()
	x.crowd = newCrowd(x.planet, &o, o.Seed)
	x.begun = time.Now()
	err = x.live(ctx)
	x.flying.Wait()
	x.caller.Close()
	return &x.res, errors.Join(err, x.planet.Stop(ctx))
}

// capacity of a region, in requests/s.
func (x *run) capacity(r int) float64 { return x.rate * float64(x.o.Workers[r%len(x.o.Workers)]) }

// asked is what a place asks for, in requests/s.
func (x *run) asked(place int, since time.Duration) float64 {
	switch {
	case place > 0:
		return others * x.capacity(place)
	case since < warm:
		return low * x.capacity(0)
	}
	return high * x.capacity(0)
}

// live has the crowd ask and send, and writes down each second what the regions' loads are.
func (x *run) live(ctx context.Context) error {
	const beat = 100 * time.Millisecond
	rng := rand.New(rand.NewPCG(x.o.Seed, 0x57e9))
	total := warm + x.o.For
	x.served = make([]float64, int(total/time.Second)+1)
	x.res.Answers = make([]Series, regions)
	for r := range x.res.Answers {
		x.res.Answers[r].At = int(warm / time.Second)
	}
	var next [regions]float64 // when each place sends its next request, in seconds
	plans := 0
	for since := time.Duration(0); since < total && ctx.Err() == nil; since = time.Since(x.begun) {
		x.crowd.refresh(time.Now())
		for r := range next {
			for ; next[r] <= since.Seconds(); next[r] += x.gap(rng) / x.asked(r, since) {
				x.send(ctx, r, since, rng)
			}
		}
		if since%time.Second == 0 {
			x.note(since)
		}
		if since == warm {
			x.crowd.settle()
			plans = x.epoch()
		}
		time.Sleep(beat)
	}
	x.res.Plans = x.epoch() - plans
	x.res.Once, x.res.Again = x.crowd.moved()
	x.res.Wrong = x.crowd.wrong
	x.flying.Wait()
	x.measure()
	return ctx.Err()
}

// gap is the time to the next request, in means.
func (x *run) gap(rng *rand.Rand) float64 {
	if x.o.Poisson {
		return rng.ExpFloat64()
	}
	return 1
}

// note writes down the regions' loads as answers have them.
func (x *run) note(since time.Duration) {
	sends := x.crowd.sends()
	for r := range regions {
		load := 0.0
		for place := range regions {
			load += sends[place][r] * x.asked(place, since)
		}
		s := &x.res.Answers[r]
		s.Util = append(s.Util, load/x.capacity(r))
	}
}

func (x *run) measure() {
	x.res.Near = x.res.Answers[0].Measure()
	for r := 1; r < regions; r++ {
		x.res.Far = max(x.res.Far, x.res.Answers[r].Measure().Peak)
	}
	s := Series{At: int(warm / time.Second)}
	for _, n := range x.served[:len(x.served)-1] {
		s.Util = append(s.Util, n/x.capacity(0))
	}
	smooth := s.Smooth(10)
	x.res.Served = smooth.Measure()
}

func (x *run) epoch() (n int) {
	a, err := x.planet.Ask(0, world.Client(0, 0), "_view."+world.Zone)
	if err == nil {
		_, _ = fmt.Sscan(a.Fields["plan_epoch"], &n)
	}
	return n
}

// send has one of a place's clients ask.
func (x *run) send(ctx context.Context, place int, since time.Duration, rng *rand.Rand) {
	who := x.crowd.draw(place, rng)
	from, to := who.client, who.to
	if rng.Float64() < x.o.Redirect {
		to = netip.Addr{} // by a redirect
	}
	// No length is like the others, as in life: from one length alone no worker learns what of a wait is its pace.
	prompt := text(rng, x.o.Prompt/2+rng.IntN(x.o.Prompt))
	x.flying.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		x.book(since, x.caller.Post(ctx, from, to, prompt, x.o.Output))
	})
}

func (x *run) book(since time.Duration, r world.Reply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Region == "virginia" && r.Status == 200 {
		x.served[since/time.Second]++
	}
	if since < warm {
		return
	}
	x.res.Sent++
	switch {
	case r.Err != nil || r.Status != 200 || r.First == 0:
		x.res.Shed++
	case r.First > Late:
		x.res.Late++
	}
}

// text is a prompt of about so many tokens that no other begins like.
func text(rng *rand.Rand, tokens int) string {
	var b strings.Builder
	for range tokens / 4 {
		fmt.Fprintf(&b, "%016x", rng.Uint64())
	}
	return b.String()
}
