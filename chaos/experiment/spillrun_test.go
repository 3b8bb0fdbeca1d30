package experiment_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// The spill experiment measures a region that loses half its workers under load, with and without spilling to its peers: how
// long its clients wait, which regions serve them, what the peers refuse, and whether requests are spilled back. Real
// gateways, zones and global nodes run in virtual time (fleet.RunInMemory). Clients use their region's gateways only, so
// that steering has no effect and the result is that of spilling alone.

const (
	gatewayCount = 2
	// spillSlot is the interval over which spilled requests are counted.
	spillSlot = 10 * time.Second
)

// spillOptions of a run.
type spillOptions struct {
	Spill          bool
	Busy           float64 // demand of each region's clients, relative to its capacity
	Workers        int     // of each region; the first one loses half of them
	Prompt, Output int     // tokens
	// Before, Halved and After are how long the region has all its workers, half of them, and all again. The first
	// two thirds of Before are warm-up and not counted.
	Before, Halved, After time.Duration
	Seed                  uint64
	Dir                   string
	Log                   *slog.Logger
}

type spillRun struct {
	options   *spillOptions
	fleet     *fleet.InMemory
	caller    *fleet.HTTPCaller
	startedAt time.Time
	inFlight  sync.WaitGroup

	mu  sync.Mutex
	res spillResult
}

// runSpill starts a fleet and halves one region of it. It must be called in a bubble.
func runSpill(ctx context.Context, o spillOptions) (*spillResult, error) {
	rate, err := fleet.WorkerRate(o.Prompt, o.Output)
	if err != nil {
		return nil, err
	}
	x := &spillRun{options: &o}
	x.fleet, err = fleet.RunInMemory(ctx, fleet.InMemoryConfig{
		Dir: o.Dir, Layout: fleet.Layout{Globals: 3, Regions: regionCount, Gateways: gatewayCount, Locals: 2, Workers: o.Workers}, TTL: 20 * time.Second, StreamDelays: true,
		Routing: fmt.Sprintf("{spill: %v}", o.Spill), Seed: o.Seed, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	x.caller = x.fleet.NewHTTPCaller()
	x.startedAt = time.Now()
	x.res.Slots = make([]int, int(x.totalTime()/spillSlot)+1)
	for r := range regionCount {
		x.inFlight.Go(func() { x.runClients(ctx, r, rate*o.Busy*float64(o.Workers)) })
	}
	time.Sleep(o.Before)
	x.fleet.CutWorkers(0, o.Workers/2)
	time.Sleep(o.Halved)
	x.fleet.RestoreWorkers(0)
	x.inFlight.Wait()
	x.caller.Close()
	x.readCounters()
	return &x.res, x.fleet.Stop(ctx)
}

func (x *spillRun) totalTime() time.Duration {
	return x.options.Before + x.options.Halved + x.options.After
}

// runClients sends the requests of a region's clients, independently of each other, through any of its gateways.
func (x *spillRun) runClients(ctx context.Context, r int, rate float64) {
	rng := rand.New(rand.NewPCG(x.options.Seed, uint64(r)))
	var flying sync.WaitGroup
	defer flying.Wait()
	next := x.startedAt
	for n := 0; ; n++ {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		if next.Sub(x.startedAt) >= x.totalTime() || ctx.Err() != nil {
			return
		}
		time.Sleep(time.Until(next))
		from, to, prompt := fleet.ClientAddr(r, n%200), fleet.GatewayHostOf(r, rng.IntN(gatewayCount)), randomPrompt(rng, x.options.Prompt)
		flying.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			at := time.Since(x.startedAt)
			x.recordReply(r, at, x.caller.PostCompletion(ctx, from, to, prompt, x.options.Output))
		})
	}
}

func (x *spillRun) recordReply(r int, at time.Duration, reply fleet.HTTPReply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	halved := at >= x.options.Before && at < x.options.Before+x.options.Halved
	home := fleet.AllSites()[r].Name
	away := reply.Region != "" && reply.Region != home
	if r > 0 {
		if halved {
			x.res.Others.addReply(reply, away)
			if reply.Region == fleet.AllSites()[0].Name {
				x.res.ServedForOthers++
			}
		}
		return
	}
	if away {
		x.res.Slots[at/spillSlot]++
	}
	switch {
	case at < x.options.Before*2/3:
	case at < x.options.Before:
		x.res.Before.addReply(reply, away)
	case halved:
		x.res.Halved.addReply(reply, away)
	default:
		x.res.After.addReply(reply, away)
	}
}

// readCounters reads the gateways' metrics.
func (x *spillRun) readCounters() {
	x.res.HeldByReason, x.res.PeerOutcomes = map[string]float64{}, map[string]float64{}
	for r := range x.fleet.GatewayMetrics {
		for _, reg := range x.fleet.GatewayMetrics[r] {
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
							x.res.HeldByReason[label["reason"]] += n
						}
					case "spillway_regional_spilled_in_total":
						x.res.PeerOutcomes[label["outcome"]] += n
					}
				}
			}
		}
	}
	from, to := int((x.options.Before+spillSlot)/spillSlot)+1, int((x.options.Before+x.options.Halved)/spillSlot)
	for i := from + 1; i < to; i++ {
		a, b := x.res.Slots[i-1], x.res.Slots[i]
		if 2*max(a, b) > 3*max(min(a, b), 1) && max(a, b) > 10 {
			x.res.Jumps++
		}
	}
}

// randomPrompt is a prompt of about the given number of tokens with a unique beginning.
func randomPrompt(rng *rand.Rand, tokens int) string {
	var b strings.Builder
	for range tokens / 4 {
		fmt.Fprintf(&b, "%016x", rng.Uint64())
	}
	return b.String()
}
