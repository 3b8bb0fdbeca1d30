package experiment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// The step experiment measures the effect of a demand step on a region: its clients' demand rises from 0.7 to 1.3 times its
// capacity, and the table shows how long it was over capacity, the overshoot of its load, the variation after settling, the
// outcomes of requests, and how many clients moved. `make step` runs it in virtual time, with a whole fleet of real tiers
// (fleet.RunInMemory); `spillway load --step` runs it on a running fleet (resolverwatch.go). Both compute their figures from
// the same kind of series (stepmeasure.go). Clients go where the fleet sends them.

const (
	regionCount = 3
	// lowDemand and highDemand are the demand of the first region's clients, relative to its capacity; otherDemand is
	// that of the other regions.
	lowDemand, highDemand, otherDemand = 0.7, 1.3, 0.4
	// stepWarmUp is how long demand is low before it rises.
	stepWarmUp = 120 * time.Second
)

// stepOptions of a run.
type stepOptions struct {
	TTL       time.Duration
	Resolvers int           // of the first region
	Poisson   bool          // random arrivals instead of evenly spaced ones
	Zipf      bool          // demand by resolver falls as 1/n instead of being equal
	ExtendTTL bool          // some resolvers cache answers beyond their TTL
	Redirect  float64       // fraction of the requests that use a redirect instead of a DNS answer
	For       time.Duration // after the step
	Prompt    int           // tokens, mean: each has half as many to half as many more
	Output    int           // tokens
	Workers   []int         // by region
	Steering  string        // value of that key of the spec
	Log       *slog.Logger  // log messages of the nodes; nil discards them
	Dir       string        // for certificates
	Seed      uint64
}

// stepRun is one running experiment.
type stepRun struct {
	options   *stepOptions
	fleet     *fleet.InMemory
	resolvers *resolverSet
	caller    *fleet.HTTPCaller
	rate      float64 // requests/s that a worker can serve
	startedAt time.Time
	inFlight  sync.WaitGroup

	mu     sync.Mutex
	res    experiment.StepResult
	served []float64 // requests by second that the first region served
}

// runStep starts a fleet, applies the step to it, and returns the result. It must be called in a bubble.
func runStep(ctx context.Context, o stepOptions) (*experiment.StepResult, error) {
	x := &stepRun{options: &o}
	var err error
	if x.rate, err = fleet.WorkerRate(o.Prompt, o.Output); err != nil {
		return nil, err
	}
	x.fleet, err = fleet.RunInMemory(ctx, fleet.InMemoryConfig{
		Dir: o.Dir, Layout: fleet.Layout{Globals: 3, Regions: regionCount}, RegionWorkers: o.Workers, TTL: o.TTL, Steering: o.Steering, Seed: o.Seed, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	x.caller = x.fleet.NewHTTPCaller()
	x.resolvers = newResolverSet(x.fleet, &o, o.Seed)
	x.startedAt = time.Now()
	err = x.runClients(ctx)
	x.inFlight.Wait()
	x.caller.Close()
	return &x.res, errors.Join(err, x.fleet.Stop(ctx))
}

// regionCapacity is the capacity of a region, in requests/s.
func (x *stepRun) regionCapacity(r int) float64 {
	return x.rate * float64(x.options.Workers[r%len(x.options.Workers)])
}

// demandAt is the demand of a region's clients, in requests/s.
func (x *stepRun) demandAt(place int, since time.Duration) float64 {
	switch {
	case place > 0:
		return otherDemand * x.regionCapacity(place)
	case since < stepWarmUp:
		return lowDemand * x.regionCapacity(0)
	}
	return highDemand * x.regionCapacity(0)
}

// runClients resolves and sends, and records the regions' loads each second.
func (x *stepRun) runClients(ctx context.Context) error {
	const beat = 100 * time.Millisecond
	rng := rand.New(rand.NewPCG(x.options.Seed, 0x57e9))
	total := stepWarmUp + x.options.For
	x.served = make([]float64, int(total/time.Second)+1)
	x.res.Answers = make([]experiment.UtilSeries, regionCount)
	for r := range x.res.Answers {
		x.res.Answers[r].StepAt = int(stepWarmUp / time.Second)
	}
	var next [regionCount]float64 // when each region's next request is due, in seconds
	plans := 0
	for since := time.Duration(0); since < total && ctx.Err() == nil; since = time.Since(x.startedAt) {
		x.resolvers.refreshExpired(time.Now())
		for r := range next {
			for ; next[r] <= since.Seconds(); next[r] += x.drawGap(rng) / x.demandAt(r, since) {
				x.sendRequest(ctx, r, since, rng)
			}
		}
		if since%time.Second == 0 {
			x.recordLoads(since)
		}
		if since == stepWarmUp {
			x.resolvers.resetMoves()
			plans = x.planEpoch()
		}
		time.Sleep(beat)
	}
	x.res.Plans = x.planEpoch() - plans
	x.res.MovedOnce, x.res.MovedAgain = x.resolvers.movedShares()
	x.res.BadAnswers = x.resolvers.badAnswers
	x.inFlight.Wait()
	x.finishResult()
	return ctx.Err()
}

// drawGap is the time to the next request, in units of the mean.
func (x *stepRun) drawGap(rng *rand.Rand) float64 {
	if x.options.Poisson {
		return rng.ExpFloat64()
	}
	return 1
}

// recordLoads records the regions' loads by the resolvers' answers.
func (x *stepRun) recordLoads(since time.Duration) {
	sends := x.resolvers.demandByRegion()
	for r := range regionCount {
		load := 0.0
		for place := range regionCount {
			load += sends[place][r] * x.demandAt(place, since)
		}
		s := &x.res.Answers[r]
		s.Util = append(s.Util, load/x.regionCapacity(r))
	}
}

func (x *stepRun) finishResult() {
	x.res.First = x.res.Answers[0].MeasureStep()
	for r := 1; r < regionCount; r++ {
		x.res.MaxOther = max(x.res.MaxOther, x.res.Answers[r].MeasureStep().Peak)
	}
	s := experiment.UtilSeries{StepAt: int(stepWarmUp / time.Second)}
	for _, n := range x.served[:len(x.served)-1] {
		s.Util = append(s.Util, n/x.regionCapacity(0))
	}
	smooth := s.SmoothOver(10)
	x.res.Served = smooth.MeasureStep()
}

func (x *stepRun) planEpoch() (n int) {
	a, err := x.fleet.QueryDNS(0, fleet.ClientAddr(0, 0), "_view."+fleet.DNSZone)
	if err == nil {
		_, _ = fmt.Sscan(a.Fields["plan_epoch"], &n)
	}
	return n
}

// sendRequest sends a request of one of a region's clients.
func (x *stepRun) sendRequest(ctx context.Context, place int, since time.Duration, rng *rand.Rand) {
	who := x.resolvers.drawResolver(place, rng)
	from, to := who.client, who.answer
	if rng.Float64() < x.options.Redirect {
		to = netip.Addr{} // by a redirect
	}
	// Lengths vary as in real traffic: with a single length a worker's rate and its fixed delay could not be
	// distinguished.
	prompt := randomPrompt(rng, x.options.Prompt/2+rng.IntN(x.options.Prompt))
	x.inFlight.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		x.recordReply(since, x.caller.PostCompletion(ctx, from, to, prompt, x.options.Output))
	})
}

func (x *stepRun) recordReply(since time.Duration, r fleet.HTTPReply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Region == "virginia" && r.Status == 200 {
		x.served[since/time.Second]++
	}
	if since < stepWarmUp {
		return
	}
	x.res.Sent++
	switch {
	case r.Err != nil || r.Status != 200 || r.FirstByteAfter == 0:
		x.res.Shed++
	case r.FirstByteAfter > experiment.StepTargetTTFT:
		x.res.Late++
	}
}
