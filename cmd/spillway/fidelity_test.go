package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// How long the planet is asked for something, of which the beginning is not counted.
const (
	faithFor  = 80 * time.Second
	faithWarm = 15 * time.Second
	faithRate = 4.0 // requests per second in each region
)

// faithModel is asked for: its name in the planet, and the simulator's.
const (
	faithModel    = "llama-3.1-8b"
	faithSimModel = "Llama-3.1-8B"
)

// faithLoad is what one region is asked for: the same each time.
func faithLoad(t *testing.T, region int) load.Source {
	t.Helper()
	s, err := load.NewPoisson(load.Poisson{
		Rate: faithRate, For: faithFor, Prompt: load.Lengths{Median: 900, P90: 2500, Max: 6000}, Output: load.Lengths{Median: 60, P90: 150, Max: 300},
		Groups: 12, PrefixTokens: 600, Seed: uint64(40 + region),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faith is what one of the two runs came to.
type faith struct {
	rate     float64 // answers per second
	p50, p99 time.Duration
	missed   int
	by       map[string]int // answers by GPU, the beginning with them
}

// TestFidelity runs the demo's planet in real time, and the same planet asked for the same in the simulator: answers per
// second and the median of the time to first token must agree within a tenth, and its p99 within a quarter.
func TestFidelity(t *testing.T) {
	if os.Getenv("SPILLWAY_FIDELITY") == "" {
		t.Skip("takes a minute and a half of a quiet machine: make fidelity")
	}
	w := wake(t, 2, 4)
	path := faithPath(t, w)
	live := faithLive(t, w)
	virtual := faithSim(t, w.Planet, path)
	fmt.Printf("\n%-28s%10s%10s%10s\n", "three regions, 24 workers", "live", "virtual", "off by")
	fmt.Printf("%-28s%10s%10s\n", "way there and back, unloaded", fmt.Sprintf("%.3g ms", path.Seconds()*1000), "given")
	line := func(what, unit string, a, b, most float64) {
		off := b/a - 1
		fmt.Printf("%-28s%10s%10s%+9.1f %%\n", what, fmt.Sprintf("%.3g %s", a, unit), fmt.Sprintf("%.3g %s", b, unit), 100*off)
		if !(off > -most && off < most) {
			t.Errorf("%s differs by %.1f %%, and %.0f %% are allowed", what, 100*off, 100*most)
		}
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	line("answers", "/s", live.rate, virtual.rate, .1)
	line("time to first token, p50", "ms", ms(live.p50), ms(virtual.p50), .1)
	line("time to first token, p99", "ms", ms(live.p99), ms(virtual.p99), .25)
	for _, gpu := range slices.Sorted(maps.Keys(virtual.by)) {
		fmt.Printf("%-28s%10d%10d\n", "answers of "+gpu, live.by[gpu], virtual.by[gpu])
	}
	if live.missed+virtual.missed > 0 {
		t.Errorf("%d requests were not answered in real time, %d in virtual", live.missed, virtual.missed)
	}
}

// faithClient is a client of one gateway.
func faithClient(t *testing.T, w *world, gateway string, source load.Source) load.Config {
	t.Helper()
	key, err := w.Key("acme")
	if err != nil {
		t.Fatal(err)
	}
	return load.Config{
		Source: source, Target: load.Target{URLs: []string{"http://" + gateway}}, Models: []string{faithModel}, Key: key,
		Path: "/v1/completions", Stream: true, Retries: -1, Timeout: time.Minute,
	}
}

// faithLive asks each region's gateway, as clients of that region do.
func faithLive(t *testing.T, w *world) (f faith) {
	t.Helper()
	var mu sync.Mutex
	var ttft []time.Duration
	gpus := map[string]string{}
	for _, n := range w.Of("worker") {
		gpus[n.Region+"/"+n.Zone+"/"+n.Name] = n.GPU
	}
	f.by = map[string]int{}
	begun := time.Now()
	var running sync.WaitGroup
	for i, gw := range w.Of("regional") {
		cfg := faithClient(t, w, gw.Addr["http"].String(), faithLoad(t, i))
		cfg.OnOutcome = func(o load.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			f.by[strings.TrimSuffix(gpus[o.Route], "-80")]++
			switch {
			case o.Due.Sub(begun) < faithWarm:
			case o.Verdict != "ok":
				f.missed++
			default:
				ttft = append(ttft, o.First.Sub(o.Due))
			}
		}
		g, err := load.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := g.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	slices.Sort(ttft)
	if len(ttft) == 0 {
		t.Fatal("nothing was answered")
	}
	f.rate, f.p50, f.p99 = float64(len(ttft))/(faithFor-faithWarm).Seconds(), ttft[len(ttft)/2], ttft[len(ttft)*99/100]
	return f
}

// faithSim asks the simulator's model of that planet, whose clients are so far from engines and back.
func faithSim(t *testing.T, p *fleet.Planet, path time.Duration) (f faith) {
	t.Helper()
	r, err := sim.Run(t.Context(), sim.Scenario{
		Fleet: faithFleet(p), Workload: newFaithWork(t, p.Layout.Regions), Models: []string{faithSimModel}, Seed: 1, Duration: faithFor, WarmUp: faithWarm,
		Limits: func(q *load.Request) int { return q.Output },
		Network: sim.Network{
			Access: path - path/5, Inside: path / 5, Between: func(string, string) time.Duration { return path / 5 },
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.by = map[string]int{}
	for _, x := range r.Workers {
		f.by[strings.TrimSuffix(x.GPU, "-80G")] += int(x.Requests)
	}
	f.p50, _ = r.TTFT.Quantile(.5)
	f.p99, _ = r.TTFT.Quantile(.99)
	f.rate, f.missed = float64(r.Measured.Completed)/(faithFor-faithWarm).Seconds(), int(r.Measured.Sent-r.Measured.Completed)
	return f
}

// faithFleet is a planet's workers as the simulator has them.
func faithFleet(p *fleet.Planet) (f sim.Fleet) {
	for i, site := range fleet.Sites()[:p.Layout.Regions] {
		f.Regions = append(f.Regions, sim.Region{Name: site.Name, Lat: site.Lat, Lon: site.Lon})
		r := &f.Regions[i]
		for _, n := range p.Of("worker") {
			if n.Region != site.Name {
				continue
			}
			if len(r.Zones) == 0 || r.Zones[len(r.Zones)-1].Name != n.Zone {
				r.Zones = append(r.Zones, sim.Zone{Name: n.Zone})
			}
			z := &r.Zones[len(r.Zones)-1]
			z.Groups = append(z.Groups, sim.Group{Count: 1, GPU: n.GPU, Model: n.Model})
		}
	}
	return f
}

// faithWork is all regions' load in order of time.
type faithWork struct {
	sources []load.Source
	heads   []*load.Request
	n       uint64
	err     error
}

func newFaithWork(t *testing.T, regions int) *faithWork {
	w := &faithWork{heads: make([]*load.Request, regions)}
	for i := range regions {
		w.sources = append(w.sources, faithLoad(t, i))
		w.fill(i)
	}
	return w
}

func (w *faithWork) fill(i int) {
	a, err := w.sources[i].Next()
	w.heads[i] = nil
	if errors.Is(err, io.EOF) {
		return
	}
	if w.err = errors.Join(w.err, err); err == nil {
		w.n++
		w.heads[i] = &load.Request{
			// nobody names a session in real time
			At: a.At, ID: w.n, Region: int32(i), Session: w.n, Prompt: a.Prompt, PromptTokens: a.PromptTokens(), Output: a.Output,
		}
	}
}

func (w *faithWork) first() int {
	at := -1
	for i, h := range w.heads {
		if h != nil && (at < 0 || h.At < w.heads[at].At) {
			at = i
		}
	}
	return at
}

func (w *faithWork) Peek() (time.Duration, bool, error) {
	if at := w.first(); at >= 0 {
		return w.heads[at].At, true, w.err
	}
	return 0, false, w.err
}

func (w *faithWork) Pop() *load.Request {
	at := w.first()
	q := w.heads[at]
	w.fill(at)
	return q
}

func (w *faithWork) Ended(*load.Request, time.Duration, bool) {}
