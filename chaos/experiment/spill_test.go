package experiment_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

var allSpillRows = flag.Bool("spill", false, "make the whole table")

func newSpillOptions() spillOptions {
	return spillOptions{
		Spill: true, Busy: 0.7, Workers: 6, Prompt: 1500, Output: 50, Before: time.Minute, Halved: time.Minute, After: 40 * time.Second, Seed: 1,
	}
}

func runSpillInBubble(t *testing.T, o spillOptions) (r *spillResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = runSpill(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := r.checkRun(); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("seed %d in %s", o.Seed, time.Since(begun).Round(time.Second))
		if err := printSpillTable(t.Output(), []spillRow{{"run", []*spillResult{r}}}); err != nil {
			t.Error(err)
		}
	}
	return r
}

// TestSpillTable is what `make spill` runs.
func TestSpillTable(t *testing.T) {
	if !*allSpillRows {
		t.Skip("the table takes minutes: make spill makes it")
	}
	var rows []spillRow
	for _, c := range []struct {
		name   string
		change func(*spillOptions)
	}{
		{"spill, 0.7 busy", func(*spillOptions) {}},
		{"no spill, 0.7 busy", func(o *spillOptions) { o.Spill = false }},
		{"spill, 0.85 busy", func(o *spillOptions) { o.Busy = 0.85 }},
		{"no spill, 0.85 busy", func(o *spillOptions) { o.Spill, o.Busy = false, 0.85 }},
	} {
		row := spillRow{Name: c.name}
		for seed := range *seedCount {
			o := newSpillOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runSpillInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A region of three loses half its workers; its clients, by what they saw:")
	if err := printSpillTable(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestHalvedRegionSpillsToPeers checks the table's results in a shorter run: peers serve a good part of what the
// halved region cannot, no request is refused, few wait long, hardly any spill back, and the rate of spills is
// steady.
func TestHalvedRegionSpillsToPeers(t *testing.T) {
	o := newSpillOptions()
	o.Before, o.Halved, o.After, o.Workers = 24*time.Second, 24*time.Second, 0, 2
	r := runSpillInBubble(t, o)
	h := &r.Halved
	if 100*h.Failed > h.Sent || 100*r.Others.Failed > r.Others.Sent || 10*h.Spilled < h.Sent || 7*h.Late > h.Sent || 4*r.ServedForOthers > h.Spilled || r.Jumps > 1 {
		t.Errorf("of %d requests %d went away, %d failed, %d were late, %d came back; %d jumps", h.Sent, h.Spilled, h.Failed, h.Late, r.ServedForOthers, r.Jumps)
	}
}

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

// spillPhase is the results of the first region's clients in one phase.
type spillPhase struct {
	Sent, Failed, Late int // Late: the first byte came after experiment.StepTargetTTFT
	Spilled            int // served by another region
	TTFTs              []time.Duration
}

// TTFTQuantile is a quantile of the times to the first byte.
func (p *spillPhase) TTFTQuantile(q float64) time.Duration {
	if len(p.TTFTs) == 0 {
		return 0
	}
	slices.Sort(p.TTFTs)
	return p.TTFTs[min(int(q*float64(len(p.TTFTs))), len(p.TTFTs)-1)]
}

func (p *spillPhase) addReply(r fleet.HTTPReply, away bool) {
	p.Sent++
	if r.Err != nil || r.Status != 200 || r.FirstByteAfter == 0 {
		p.Failed++
		return
	}
	p.TTFTs = append(p.TTFTs, r.FirstByteAfter)
	if r.FirstByteAfter > experiment.StepTargetTTFT {
		p.Late++
	}
	if away {
		p.Spilled++
	}
}

// spillResult is the result of a run.
type spillResult struct {
	Before, Halved, After spillPhase
	Others                spillPhase // clients of the other regions, while the first one is halved
	Slots                 []int      // requests of the first region's clients that others served, by time slot
	ServedForOthers       int        // requests of others' clients that the halved region served
	Spilled, Refused      float64
	HeldByReason          map[string]float64 // by reason
	PeerOutcomes          map[string]float64 // by outcome
	Jumps                 int                // slots in which the spilled fraction changed by more than half, after it settled
}

var errNothingSent = errors.New("nothing was sent")

// checkRun reports whether a run has usable results.
func (r *spillResult) checkRun() error {
	if r.Before.Sent == 0 || r.Halved.Sent == 0 {
		return errNothingSent
	}
	return nil
}

// spillRow is one setup with the results of its seeds.
type spillRow struct {
	Name    string
	Results []*spillResult
}

// printSpillTable writes the table, one line per run.
func printSpillTable(w io.Writer, rows []spillRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET-UP\tBEFORE p99\tHALVED p50\tp99\tLATE\tFAILED\tSERVED AWAY\tAFTER p99\tAWAY\tOTHERS' p99\tFAILED\tREFUSED BY PEERS\tSPILLED BACK\tJUMPS")
	for _, row := range rows {
		for _, r := range row.Results {
			h, o := &r.Halved, &r.Others
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f of %.0f\t%d\t%d\n", row.Name,
				formatMillis(r.Before.TTFTQuantile(.99)), formatMillis(h.TTFTQuantile(.5)), formatMillis(h.TTFTQuantile(.99)), formatShare(h.Late, h.Sent), formatShare(h.Failed, h.Sent), formatShare(h.Spilled, h.Sent),
				formatMillis(r.After.TTFTQuantile(.99)), formatShare(r.After.Spilled, r.After.Sent), formatMillis(o.TTFTQuantile(.99)), formatShare(o.Failed, o.Sent), r.Refused, r.Refused+r.Spilled, r.ServedForOthers, r.Jumps)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range rows {
		for _, r := range row.Results {
			_, err := fmt.Fprintf(w, "%s: served away by 10 s %v; held back in the region %s; at peers %s\n", row.Name, r.Slots, formatCounts(r.HeldByReason), formatCounts(r.PeerOutcomes))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func formatMillis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func formatShare(n, of int) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

func formatCounts(m map[string]float64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %.0f", k, m[k]))
	}
	return strings.Join(out, ", ")
}
