package experiment_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

var (
	allStepRows = flag.Bool("step", false, "make the whole table of a step of demand: make step")
	seedCount   = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func newStepOptions() stepOptions {
	return stepOptions{TTL: 30 * time.Second, Resolvers: 2000, Redirect: 0.1, For: 5 * time.Minute, Prompt: 2000, Output: 8, Workers: []int{3, 6, 6}, Seed: 1}
}

// runStepInBubble runs one experiment in a bubble.
func runStepInBubble(t *testing.T, o stepOptions) (r *experiment.StepResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = runStep(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("TTL %s seed %d in %s: %+v, served %+v, others' peak %.2f, %d plans, moved %.3f, again %.3f, %d sent, %d shed, %d late, %d wrong", o.TTL, o.Seed,
			time.Since(begun).Round(time.Second), r.First, r.Served, r.MaxOther, r.Plans, r.MovedOnce, r.MovedAgain, r.Sent, r.Shed, r.Late, r.BadAnswers)
	}
	return r
}

// TestStepTable is what `make step` runs.
func TestStepTable(t *testing.T) {
	if !*allStepRows {
		t.Skip("the table takes minutes: make step makes it")
	}
	var rows []experiment.StepRow
	for _, c := range []struct {
		name   string
		change func(*stepOptions)
	}{
		{"TTL 30", func(*stepOptions) {}},
		{"TTL 10", func(o *stepOptions) { o.TTL = 10 * time.Second }},
		{"TTL 30, Zipf resolvers", func(o *stepOptions) { o.Zipf = true }},
		{"TTL 10, Poisson arrivals", func(o *stepOptions) { o.TTL, o.Poisson = 10*time.Second, true }},
		{"TTL 20, Poisson, 8.74% keep longer", func(o *stepOptions) { o.TTL, o.Poisson, o.ExtendTTL = 20*time.Second, true, true }},
	} {
		row := experiment.StepRow{Name: c.name}
		for seed := range *seedCount {
			o := newStepOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runStepInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A step of demand from 0.7 to 1.3 of the first region's capacity, by its resolvers' answers:")
	if err := experiment.PrintSteps(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestStepSettlesWithoutOscillation checks the table's results, with one seed and a shorter run.
func TestStepSettlesWithoutOscillation(t *testing.T) {
	o := newStepOptions()
	o.TTL, o.For, o.Resolvers = 10*time.Second, 4*time.Minute, 1000
	r := runStepInBubble(t, o)
	if r.First.OverSeconds > 30 || r.First.SD > 0.02 || r.First.Undershoot > 0.15 || r.MaxOther > 0.85 || r.MovedAgain > 0.05 || r.Plans > 20 || r.BadAnswers > 0 {
		t.Errorf("%+v", r)
	}
}

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

// extendingShare is the fraction of resolvers that cache answers beyond their TTL (8.74 % of 8,524 measured ones do),
// and minExtension the minimum time.
const (
	extendingShare = 0.0874
	minExtension   = 2 * time.Minute
)

// simResolver is a resolver of one region's clients. It resolves again when its answer expires, whether or not a
// client asks then, as resolvers with many clients do.
type simResolver struct {
	client      netip.Addr
	demandShare float64 // of its region's demand
	extraHold   time.Duration
	answer      netip.Addr
	region      int
	expiresAt   time.Time
	moves       int
}

// resolverSet is the resolvers of all regions.
type resolverSet struct {
	fleet      *fleet.InMemory
	rng        *rand.Rand
	places     [][]simResolver
	badAnswers int // invalid answers
}

func newResolverSet(p *fleet.InMemory, o *stepOptions, seed uint64) *resolverSet {
	c := &resolverSet{fleet: p, rng: rand.New(rand.NewPCG(seed, 0xc20d))}
	for r := range regionCount {
		n := o.Resolvers
		if r > 0 {
			n /= 10 // they have little demand
		}
		place, sum := make([]simResolver, n), 0.0
		for i := range place {
			x := &place[i]
			x.client, x.demandShare, x.region = fleet.ClientAddr(r, i), 1, -1
			if o.Zipf {
				x.demandShare = 1 / float64(i+1)
			}
			if o.ExtendTTL && c.rng.Float64() < extendingShare {
				x.extraHold = minExtension
			}
			sum += x.demandShare
		}
		for i := range place {
			place[i].demandShare /= sum
		}
		c.rng.Shuffle(n, func(i, j int) {
			place[i].demandShare, place[j].demandShare = place[j].demandShare, place[i].demandShare
		})
		c.places = append(c.places, place)
	}
	return c
}

// refreshExpired lets the resolvers with expired answers query again. Initially the answers have random remaining
// lifetimes.
func (c *resolverSet) refreshExpired(now time.Time) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; !now.Before(x.expiresAt) {
				c.askServer(x, now)
			}
		}
	}
}

func (c *resolverSet) askServer(x *simResolver, now time.Time) {
	a, err := c.fleet.QueryDNS(c.rng.IntN(len(c.fleet.Globals)), x.client, fleet.ServiceName)
	to := c.fleet.RegionOf(a.Addr)
	if err != nil || to < 0 {
		c.badAnswers++
		x.expiresAt = now.Add(time.Second)
		return
	}
	life := max(a.TTL, x.extraHold)
	if x.region < 0 {
		life = time.Duration(c.rng.Int64N(int64(life)))
	} else if x.region != to {
		x.moves++
	}
	x.answer, x.region, x.expiresAt = a.Addr, to, now.Add(life)
}

// demandByRegion is the part of each region's demand that its resolvers' answers send to each region.
func (c *resolverSet) demandByRegion() (out [regionCount][regionCount]float64) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; x.region >= 0 {
				out[r][x.region] += x.demandShare
			}
		}
	}
	return out
}

// drawResolver draws a resolver of a region, weighted by demand.
func (c *resolverSet) drawResolver(place int, rng *rand.Rand) *simResolver {
	at := rng.Float64()
	for i := range c.places[place] {
		if at -= c.places[place][i].demandShare; at < 0 {
			return &c.places[place][i]
		}
	}
	return &c.places[place][0]
}

// movedShares is the fraction of the first region's resolvers that have changed their region, and the fraction that
// did so more than once.
func (c *resolverSet) movedShares() (once, again float64) {
	for i := range c.places[0] {
		switch x := &c.places[0][i]; {
		case x.moves > 1:
			again++
			fallthrough
		case x.moves > 0:
			once++
		}
	}
	n := float64(len(c.places[0]))
	return once / n, again / n
}

// resetMoves resets the counts of moves.
func (c *resolverSet) resetMoves() {
	for i := range c.places[0] {
		c.places[0][i].moves = 0
	}
}
