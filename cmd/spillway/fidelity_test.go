package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// The length of the runs and the part at the beginning that is not measured.
const (
	fidelityDuration = 80 * time.Second
	fidelityWarmUp   = 15 * time.Second
	fidelityRate     = 4.0 // requests per second in each region
)

// The requested model: its name in the fleet, and in the simulator.
const (
	fidelityModel    = "llama-3.1-8b"
	fidelitySimModel = "Llama-3.1-8B"
)

// newFidelitySource returns the requests to one region, the same in each run.
func newFidelitySource(t *testing.T, region int) load.ArrivalSource {
	t.Helper()
	s, err := load.NewPoissonSource(load.PoissonConfig{
		Rate: fidelityRate, For: fidelityDuration, Prompt: load.LengthDist{Median: 900, P90: 2500, Max: 6000}, Output: load.LengthDist{Median: 60, P90: 150, Max: 300},
		Groups: 12, PrefixTokens: 600, Seed: uint64(40 + region),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fidelityResult is the result of one of the two runs.
type fidelityResult struct {
	answerRate   float64 // answers per second
	p50, p99     time.Duration
	unanswered   int
	answersByGPU map[string]int // answers by GPU, including the unmeasured beginning
}

// TestFidelity runs the demo fleet in real time, and the same fleet with the same requests in the simulator: answers per
// second and the median time to first token must agree within 10 %, its p99 within 25 %.
func TestFidelity(t *testing.T) {
	if os.Getenv("SPILLWAY_FIDELITY") == "" {
		t.Skip("takes 90 s and needs a quiet machine: make fidelity")
	}
	w := startInProcessFleet(t, 2, 4)
	path := measurePathDelay(t, w)
	live := runLiveFleet(t, w)
	virtual := runSimulatedFleet(t, w.Files, path)
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
	line("answers", "/s", live.answerRate, virtual.answerRate, .1)
	line("time to first token, p50", "ms", ms(live.p50), ms(virtual.p50), .1)
	line("time to first token, p99", "ms", ms(live.p99), ms(virtual.p99), .25)
	for _, gpu := range slices.Sorted(maps.Keys(virtual.answersByGPU)) {
		fmt.Printf("%-28s%10d%10d\n", "answers of "+gpu, live.answersByGPU[gpu], virtual.answersByGPU[gpu])
	}
	if live.unanswered+virtual.unanswered > 0 {
		t.Errorf("%d requests were not answered in real time, %d in virtual time", live.unanswered, virtual.unanswered)
	}
}

// newFidelityClientConfig returns the config of a client of one gateway.
func newFidelityClientConfig(t *testing.T, w *inProcessFleet, gateway string, source load.ArrivalSource) load.Config {
	t.Helper()
	key, err := w.ReadTenantKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	return load.Config{
		Source: source, Target: load.Target{URLs: []string{"http://" + gateway}}, Models: []string{fidelityModel}, Key: key,
		Path: "/v1/completions", Stream: true, Retries: -1, Timeout: time.Minute,
	}
}

// runLiveFleet sends requests to each region's gateway, as clients of that region do.
func runLiveFleet(t *testing.T, w *inProcessFleet) (f fidelityResult) {
	t.Helper()
	var mu sync.Mutex
	var ttft []time.Duration
	gpus := map[string]string{}
	for _, n := range w.NodesByRole("worker") {
		gpus[n.Region+"/"+n.Zone+"/"+n.Name] = n.GPU
	}
	f.answersByGPU = map[string]int{}
	begun := time.Now()
	var running sync.WaitGroup
	for i, gw := range w.NodesByRole("regional") {
		cfg := newFidelityClientConfig(t, w, gw.Addr["http"].String(), newFidelitySource(t, i))
		cfg.OnOutcome = func(o load.RequestOutcome) {
			mu.Lock()
			defer mu.Unlock()
			f.answersByGPU[strings.TrimSuffix(gpus[o.Route], "-80")]++
			switch {
			case o.Due.Sub(begun) < fidelityWarmUp:
			case o.Kind != "ok":
				f.unanswered++
			default:
				ttft = append(ttft, o.First.Sub(o.Due))
			}
		}
		g, err := load.NewGenerator(cfg)
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
		t.Fatal("no request was answered")
	}
	f.answerRate, f.p50, f.p99 = float64(len(ttft))/(fidelityDuration-fidelityWarmUp).Seconds(), ttft[len(ttft)/2], ttft[len(ttft)*99/100]
	return f
}

// runSimulatedFleet runs the same requests in the simulator. path is the round trip from a client to an engine.
func runSimulatedFleet(t *testing.T, p *fleet.Files, path time.Duration) (f fidelityResult) {
	t.Helper()
	r, err := sim.Run(t.Context(), sim.Scenario{
		Fleet: buildSimFleet(p), Workload: newFidelityWorkload(t, p.Layout.Regions), Models: []string{fidelitySimModel}, Seed: 1, Duration: fidelityDuration, WarmUp: fidelityWarmUp,
		OutputLimit: func(q *load.Request) int { return q.Output },
		Network: sim.NetworkModel{
			AccessRTT: path - path/5, ZoneRTT: path / 5, RegionRTT: func(string, string) time.Duration { return path / 5 },
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.answersByGPU = map[string]int{}
	for _, x := range r.Workers {
		f.answersByGPU[strings.TrimSuffix(x.GPU, "-80G")] += int(x.Requests)
	}
	f.p50, _ = r.TTFT.Quantile(.5)
	f.p99, _ = r.TTFT.Quantile(.99)
	f.answerRate, f.unanswered = float64(r.Measured.Completed)/(fidelityDuration-fidelityWarmUp).Seconds(), int(r.Measured.Sent-r.Measured.Completed)
	return f
}

// buildSimFleet returns the workers of a fleet for the simulator.
func buildSimFleet(p *fleet.Files) (f sim.Fleet) {
	for i, site := range fleet.AllSites()[:p.Layout.Regions] {
		f.Regions = append(f.Regions, sim.FleetRegion{Name: site.Name, Lat: site.Lat, Lon: site.Lon})
		r := &f.Regions[i]
		for _, n := range p.NodesByRole("worker") {
			if n.Region != site.Name {
				continue
			}
			if len(r.Zones) == 0 || r.Zones[len(r.Zones)-1].Name != n.Zone {
				r.Zones = append(r.Zones, sim.FleetZone{Name: n.Zone})
			}
			z := &r.Zones[len(r.Zones)-1]
			z.Groups = append(z.Groups, sim.WorkerGroup{Count: 1, GPU: n.GPU, Model: n.Model})
		}
	}
	return f
}

// fidelityWorkload merges the requests of all regions in order of time.
type fidelityWorkload struct {
	sources      []load.ArrivalSource
	nextRequests []*load.Request
	requestCount uint64
	err          error
}

func newFidelityWorkload(t *testing.T, regions int) *fidelityWorkload {
	w := &fidelityWorkload{nextRequests: make([]*load.Request, regions)}
	for i := range regions {
		w.sources = append(w.sources, newFidelitySource(t, i))
		w.fetchNext(i)
	}
	return w
}

func (w *fidelityWorkload) fetchNext(i int) {
	a, err := w.sources[i].NextArrival()
	w.nextRequests[i] = nil
	if errors.Is(err, io.EOF) {
		return
	}
	if w.err = errors.Join(w.err, err); err == nil {
		w.requestCount++
		w.nextRequests[i] = &load.Request{
			// requests of the live run name no session
			At: a.At, ID: w.requestCount, Region: int32(i), Session: w.requestCount, Prompt: a.Prompt, PromptTokens: a.PromptTokens(), Output: a.Output,
		}
	}
}

func (w *fidelityWorkload) findEarliest() int {
	at := -1
	for i, h := range w.nextRequests {
		if h != nil && (at < 0 || h.At < w.nextRequests[at].At) {
			at = i
		}
	}
	return at
}

func (w *fidelityWorkload) Peek() (time.Duration, bool, error) {
	if at := w.findEarliest(); at >= 0 {
		return w.nextRequests[at].At, true, w.err
	}
	return 0, false, w.err
}

func (w *fidelityWorkload) Pop() *load.Request {
	at := w.findEarliest()
	q := w.nextRequests[at]
	w.fetchNext(at)
	return q
}

func (w *fidelityWorkload) FinishRequest(*load.Request, time.Duration, bool) {}

// probeCount is the number of requests to each region before it is loaded, one every probeInterval.
const (
	probeCount    = 40
	probeInterval = 125 * time.Millisecond
)

// probeSource returns requests of equal length at equal intervals from startAt on, each with a different prompt.
type probeSource struct {
	sent, total int
	startAt     time.Duration
}

func (p *probeSource) NextArrival() (load.Arrival, error) {
	if p.sent == p.total {
		return load.Arrival{}, io.EOF
	}
	p.sent++
	return load.Arrival{At: p.startAt + time.Duration(p.sent)*probeInterval, Prompt: []load.Piece{{ID: uint64(p.sent) << 32, Tokens: 900}}, Output: 2}, nil
}

// measurePathDelay measures the delay between client and engine, both ways, on this machine without other load: timers, three
// servers and four connections. It is the mean time to first token measured by clients, from the scheduled time of a request,
// minus that measured by the engines. The simulator does not model this delay and gets it as a parameter.
func measurePathDelay(t *testing.T, w *inProcessFleet) time.Duration {
	t.Helper()
	probe := func(n int) (ttft time.Duration, count int) {
		var mu sync.Mutex
		var running sync.WaitGroup
		for i, gw := range w.NodesByRole("regional") {
			cfg := newFidelityClientConfig(t, w, gw.Addr["http"].String(), &probeSource{total: n, startAt: time.Duration(i) * probeInterval / 3}) // one region after another
			cfg.OnOutcome = func(o load.RequestOutcome) {
				mu.Lock()
				defer mu.Unlock()
				if o.Kind == "ok" {
					ttft, count = ttft+o.First.Sub(o.Due), count+1
				}
			}
			g, err := load.NewGenerator(cfg)
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
		return ttft, count
	}
	probe(4) // establishes connections
	before, began := sumEngineTTFT(t, w)
	seen, n := probe(probeCount)
	after, ended := sumEngineTTFT(t, w)
	if n == 0 || ended-began != n {
		t.Fatalf("%d probes were answered, and engines began %d answers", n, ended-began)
	}
	return (seen-(after-before))/time.Duration(n) - gpu.PerTokenTime
}

// sumEngineTTFT sums the times to first token that all workers measured, and counts them.
func sumEngineTTFT(t *testing.T, w *inProcessFleet) (sum time.Duration, n int) {
	t.Helper()
	for _, x := range w.NodesByRole("worker") {
		page, err := fetchPage(http.DefaultClient, fmt.Sprintf("http://%s/metrics", x.Addr["http"]))
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := readSample(page, "vllm:time_to_first_token_seconds_sum{")
		if err != nil {
			t.Fatal(err)
		}
		count, err := readSample(page, "vllm:time_to_first_token_seconds_count{")
		if err != nil {
			t.Fatal(err)
		}
		sum, n = sum+time.Duration(seconds*float64(time.Second)), n+int(count)
	}
	return sum, n
}
