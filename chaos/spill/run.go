package spill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/world"
)

const (
	regions  = 3
	gateways = 2
	// Slot is how long a stretch is of which moves are counted.
	Slot = 10 * time.Second
	// Target is the class's target time to first token that the spec has by default.
	Target = 2 * time.Second
)

// Options of a run.
type Options struct {
	Spill          bool
	Busy           float64 // what each region's clients ask for, over what it can do
	Workers        int     // of each region; the first one loses half of them
	Prompt, Output int     // tokens
	// Before, Halved and After are how long the region has all its workers, half of them, and all again. The first two thirds
	// of Before are warming up and are not counted.
	Before, Halved, After time.Duration
	Seed                  uint64
	Dir                   string
	Log                   *slog.Logger
}

// Phase is what clients of the first region saw in one stretch.
type Phase struct {
	Sent, Failed, Late int // Late: the first byte came after Target
	Away               int // served by another region
	First              []time.Duration
}

// Quantile of the times to the first byte.
func (p *Phase) Quantile(q float64) time.Duration {
	if len(p.First) == 0 {
		return 0
	}
	slices.Sort(p.First)
	return p.First[min(int(q*float64(len(p.First))), len(p.First)-1)]
}

// Result of a run.
type Result struct {
	Before, Halved, After Phase
	Others                Phase // clients of the other regions, while the first one is halved
	Slots                 []int // requests of the first region's clients that others served, by Slot
	Back                  int   // requests of others' clients that the halved region served
	Spilled, Refused      float64
	Held                  map[string]float64 // by reason
	Guests                map[string]float64 // by outcome
	Jumps                 int                // slots in which the spilled part changed by more than half of all, up or down, after it settled
}

type run struct {
	o      *Options
	planet *world.Planet
	caller *world.Caller
	begun  time.Time
	flying sync.WaitGroup

	mu  sync.Mutex
	res Result
}

// Run makes a planet and halves one region of it. It is to be called in a bubble.
func Run(ctx context.Context, o Options) (*Result, error) {
	rate, err := world.Rate(o.Prompt, o.Output)
	if err != nil {
		return nil, err
	}
	x := &run{o: &o}
	x.planet, err = world.New(ctx, world.Config{
		Dir: o.Dir, Globals: 3, Regions: world.Three(o.Workers), Gateways: gateways, Locals: 2, TTL: 20 * time.Second, Far: true,
		Routing: fmt.Sprintf("{spill: %v}", o.Spill), Seed: o.Seed, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	x.caller = x.planet.Caller()
	x.begun = time.Now()
	x.res.Slots = make([]int, int(x.total()/Slot)+1)
	for r := range regions {
		x.flying.Go(func() { x.crowd(ctx, r, rate*o.Busy*float64(o.Workers)) })
	}
	time.Sleep(o.Before)
	x.planet.CutWorkers(0, o.Workers/2)
	time.Sleep(o.Halved)
	x.planet.MendWorkers(0)
	x.flying.Wait()
	x.caller.Close()
	x.count()
	return &x.res, x.planet.Stop(ctx)
}

func (x *run) total() time.Duration { return x.o.Before + x.o.Halved + x.o.After }

// crowd has a region's clients ask, independently of each other, through any of its gateways.
func (x *run) crowd(ctx context.Context, r int, rate float64) {
	rng := rand.New(rand.NewPCG(x.o.Seed, uint64(r)))
	var flying sync.WaitGroup
	defer flying.Wait()
	next := x.begun
	for n := 0; ; n++ {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		if next.Sub(x.begun) >= x.total() || ctx.Err() != nil {
			return
		}
		time.Sleep(time.Until(next))
		from, to, prompt := world.Client(r, n%200), world.GatewayHostOf(r, rng.IntN(gateways)), text(rng, x.o.Prompt)
		flying.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			at := time.Since(x.begun)
			x.book(r, at, x.caller.Post(ctx, from, to, prompt, x.o.Output))
		})
	}
}

func (x *run) book(r int, at time.Duration, reply world.Reply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	halved := at >= x.o.Before && at < x.o.Before+x.o.Halved
	home := world.Three(1)[r].Name
	away := reply.Region != "" && reply.Region != home
	if r > 0 {
		if halved {
			x.res.Others.add(reply, away)
			if reply.Region == world.Three(1)[0].Name {
				x.res.Back++
			}
		}
		return
	}
	if away {
		x.res.Slots[at/Slot]++
	}
	switch {
	case at < x.o.Before*2/3:
	case at < x.o.Before:
		x.res.Before.add(reply, away)
	case halved:
		x.res.Halved.add(reply, away)
	default:
		x.res.After.add(reply, away)
	}
}

func (p *Phase) add(r world.Reply, away bool) {
	p.Sent++
	if r.Err != nil || r.Status != 200 || r.First == 0 {
		p.Failed++
		return
	}
	p.First = append(p.First, r.First)
	if r.First > Target {
		p.Late++
	}
	if away {
		p.Away++
	}
}

// count reads the gateways' metrics.
func (x *run) count() {
	x.res.Held, x.res.Guests = map[string]float64{}, map[string]float64{}
	for r := range x.planet.Metrics {
		for _, reg := range x.planet.Metrics[r] {
			families, err := reg.Gather()
			if err != nil {
				continue
			}
			for _, f := range families {
				for _, m := range f.Metric {
					label := map[string]string{}
					for _, l := range m.Label {
						label[l.GetName()] = l.GetValue()
					}
					switch n := m.Counter.GetValue(); f.GetName() {
					case "spillway_regional_spills_total":
						x.res.Spilled += n
					case "spillway_regional_spill_refusals_total":
						x.res.Refused += n
					case "spillway_regional_spills_held_total":
						if r == 0 {
							x.res.Held[label["reason"]] += n
						}
					case "spillway_regional_guests_total":
						x.res.Guests[label["outcome"]] += n
					}
				}
			}
		}
	}
	from, to := int((x.o.Before+Slot)/Slot)+1, int((x.o.Before+x.o.Halved)/Slot)
	for i := from + 1; i < to; i++ {
		a, b := x.res.Slots[i-1], x.res.Slots[i]
		if 2*max(a, b) > 3*max(min(a, b), 1) && max(a, b) > 10 {
			x.res.Jumps++
		}
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

var errNothing = errors.New("nothing was sent")

// check says whether a run is worth looking at.
func (r *Result) check() error {
	if r.Before.Sent == 0 || r.Halved.Sent == 0 {
		return errNothing
	}
	return nil
}
