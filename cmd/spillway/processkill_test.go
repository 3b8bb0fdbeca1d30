package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// processFleet is a fleet of processes under load.
type processFleet struct {
	*inProcessFleet
	ps        *fleet.Processes
	generator *load.Generator
	killedIDs []string // node IDs
}

// TestKilledProcessesLoseNoRequests kills one process of every tier with SIGKILL while clients send requests by DNS. Requests
// without any response bytes must be answered elsewhere, and every name must resolve. Streams that had begun are resumed
// elsewhere, except those of clients whose gateway was killed.
func TestKilledProcessesLoseNoRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	p := startProcessFleet(t)
	if p.Layout.OneAddress {
		t.Skip("gateways need different addresses for DNS: this test needs all of 127.0.0.0/8")
	}
	finish := p.startLoad(t)
	p.waitForAnswers(t, 20, "requests flow")

	p.killNode(t, p.findNode("virginia-a-w1"))
	p.waitForAnswers(t, 35, "requests flow without a worker")

	p.killNode(t, p.findNode("frankfurt-b-local1"))
	p.waitForAnswers(t, 35, "requests flow without a local")
	if r := p.generator.CurrentReport(); r.Cut > 0 {
		t.Errorf("%d streams were interrupted by the death of a worker or a local instance: want all of them resumed", r.Cut)
	}

	p.killNode(t, p.gatewayOf("tokyo"))
	took := waitForSuccess(t, testTimeout, "every name server sends Tokyo's clients elsewhere", func() error { return p.checkSteering(nearestRegions("tokyo")) })
	t.Logf("DNS sent clients elsewhere %s after the death of a gateway", took.Round(time.Millisecond))
	p.waitForAnswers(t, 35, "requests flow without a gateway")

	p.killLeader(t)
	p.waitForAnswers(t, 40, "requests flow without the leader")
	p.checkReport(t, finish())
}

// startProcessFleet starts a fleet of processes that execute this test binary; see TestMain.
func startProcessFleet(t *testing.T) *processFleet { return startProcessFleetOfSize(t, 2, 2) }

// startProcessFleetOfSize starts a fleet with this number of zones in each region and of workers in each zone.
func startProcessFleetOfSize(t *testing.T, zones, workers int) *processFleet {
	t.Helper()
	p := &processFleet{inProcessFleet: &inProcessFleet{Files: writeTestFleet(t, zones, workers)}}
	binary, err := exec.LookPath("spillway")
	if err != nil {
		t.Fatal(err)
	}
	if p.ps, err = fleet.SpawnAll(p.Files, binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.checkLogs(t)
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := p.ps.Stop(ctx); err != nil {
			t.Errorf("stopping the processes: %v", err)
		}
	})
	waitForSuccess(t, testTimeout, "every node is ready", p.checkReady)
	waitForSuccess(t, testTimeout, "every client is sent to the nearest region", func() error { return p.checkSteering(nearestRegions()) })
	return p
}

// checkLogs fails if a node ended by itself, and prints the logs if the test failed.
func (p *processFleet) checkLogs(t *testing.T) {
	for id, err := range p.ps.ExitedNodes() {
		if !slices.Contains(p.killedIDs, id) {
			t.Errorf("%s ended by itself: %v", id, err)
		}
	}
	trouble := regexp.MustCompile(`(?m)^.*(level=WARN|level=ERROR|panic:|DATA RACE).*$`)
	for _, n := range p.Nodes {
		text, err := os.ReadFile(p.ps.LogPath(n))
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(string(text), "DATA RACE") || strings.Contains(string(text), "panic:") {
			t.Errorf("log of %s:\n%s", n.ID(), text)
		}
		if lines := trouble.FindAllString(string(text), 15); t.Failed() && len(lines) > 0 {
			t.Logf("log of %s:\n%s", n.ID(), strings.Join(lines, "\n"))
		}
	}
}

// startLoad sends about ten requests per second from all three sites until the returned function is called, which waits for
// the last response.
func (p *processFleet) startLoad(t *testing.T) func() *load.LoadReport {
	t.Helper()
	source, err := load.NewPoissonSource(load.PoissonConfig{Rate: 10, Prompt: load.LengthDist{Median: 100, P90: 300, Max: 1000}, Output: load.LengthDist{Median: 20, P90: 60, Max: 120}, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	key, err := p.ReadTenantKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	cfg := load.Config{
		Source: source, Models: []string{"llama-3.1-8b", "qwen2.5-7b"}, Key: key, Stream: true, Grace: testTimeout,
		Target: load.Target{Service: strings.TrimSuffix(fleet.ServiceName, "."), Port: int(p.gatewayOf("tokyo").Addr["http"].Port())},
	}
	for _, a := range p.DNSAddrs() {
		cfg.Target.DNS = append(cfg.Target.DNS, a.String())
	}
	for i, s := range fleet.AllSites()[:3] {
		source, _ := p.ClientAddr(i)
		cfg.Clients = append(cfg.Clients, load.Client{Name: s.City, Source: source})
	}
	if p.generator, err = load.NewGenerator(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.generator.Run(ctx) }()
	finish := func() *load.LoadReport {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("sending: %v", err)
		}
		ended <- nil // for a second call
		return p.generator.CurrentReport()
	}
	t.Cleanup(func() { finish() })
	return finish
}

// waitForAnswers waits for this number of additional complete answers.
func (p *processFleet) waitForAnswers(t *testing.T, more uint64, what string) {
	t.Helper()
	goal := p.generator.CurrentReport().OK + more
	waitForSuccess(t, testTimeout, what, func() error {
		if r := p.generator.CurrentReport(); r.OK < goal {
			return fmt.Errorf("%d answers of %d; %s", r.OK, goal, formatLoadSummary(r))
		}
		return nil
	})
}

func (p *processFleet) findNode(id string) fleet.Node {
	i := slices.IndexFunc(p.Nodes, func(n fleet.Node) bool { return n.ID() == id })
	return p.Nodes[i]
}

// killNode kills a process with SIGKILL.
func (p *processFleet) killNode(t *testing.T, n fleet.Node) {
	t.Helper()
	process, err := os.FindProcess(p.ps.PID(n))
	if err != nil {
		t.Fatal(err)
	}
	p.killedIDs = append(p.killedIDs, n.ID())
	if err := process.Kill(); err != nil {
		t.Fatalf("killing %s: %v", n.ID(), err)
	}
	r := p.generator.CurrentReport()
	t.Logf("killed %s at %s, %d requests in flight", n.ID(), r.Elapsed.Round(time.Millisecond), r.InFlight)
	waitForSuccess(t, testTimeout, n.ID()+" is gone", func() error {
		if p.ps.PID(n) != 0 {
			return fmt.Errorf("it still runs")
		}
		return nil
	})
}

// killLeader kills the Raft leader and waits until the other nodes have a new one.
func (p *processFleet) killLeader(t *testing.T) {
	t.Helper()
	leader := func(without string) (name string, err error) {
		for _, n := range p.NodesByRole("global") {
			if n.Name == without {
				continue
			}
			var s admin.Status
			out, _, err := runSpillway(t, "status", "-o", "json", "--server", adminServerURL("global", n.Name))
			if err != nil {
				return "", err
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return "", err
			}
			switch {
			case s.Raft.Leader == "" || s.Raft.Leader == without:
				return "", fmt.Errorf("%s has no other leader", n.Name)
			case name != "" && name != s.Raft.Leader:
				return "", fmt.Errorf("nodes report two leaders, %s and %s", name, s.Raft.Leader)
			}
			name = s.Raft.Leader
		}
		return name, nil
	}
	old, err := leader("")
	if err != nil {
		t.Fatal(err)
	}
	p.killNode(t, p.findNode(old))
	took := waitForSuccess(t, testTimeout, "another leader is elected", func() error {
		_, err := leader(old)
		return err
	})
	t.Logf("a new leader was elected %s after the death of the leader", took.Round(time.Millisecond))
}

// checkReport checks the results as clients measured them.
func (p *processFleet) checkReport(t *testing.T, r *load.LoadReport) {
	t.Helper()
	t.Logf("%s, %d requests, %d ok, %d refused, %d cut mid-stream, %d lost, %d without an address, %d abandoned, %d retried elsewhere",
		r.Elapsed.Round(time.Millisecond), r.Sent, r.OK, r.Refused, r.Cut, r.Lost, r.NoAddress, r.Abandoned, r.Retried)
	t.Logf("DNS: %d resolutions, %d failed; %d queries, %d without an answer", r.DNS.Resolutions, r.DNS.FailedResolutions, r.DNS.Queries, r.DNS.FailedQueries)
	for _, region := range r.Regions {
		t.Logf("%s: %d ok, %d cut, TTFT p50 %s, p99 %s", region.Name, region.OK, region.Cut, region.TTFT.P50.Round(time.Millisecond), region.TTFT.P99.Round(time.Millisecond))
	}
	if r.DNS.FailedResolutions+r.NoAddress > 0 || r.DNS.Resolutions == 0 {
		t.Errorf("%d of %d resolutions failed, %d requests had no address: want none", r.DNS.FailedResolutions, r.DNS.Resolutions, r.NoAddress)
	}
	if r.Lost+r.Refused+r.Abandoned > 0 {
		t.Errorf("%d requests were lost, %d refused and %d abandoned: want none; %+v", r.Lost, r.Refused, r.Abandoned, r.Codes)
	}
	if r.Sent != r.OK+r.Cut {
		t.Errorf("%d requests were sent, %d answered and %d cut", r.Sent, r.OK, r.Cut)
	}
	if len(p.killedIDs) != 4 {
		t.Errorf("killed %v in %s, want one of each tier", p.killedIDs, filepath.Base(p.Dir))
	}
}

// TestResumedStreamsEqualUndisturbedOnes kills a worker, a local instance and a peer region's gateway with SIGKILL while streams
// run through each, and compares every text, its end and its usage with those of an undisturbed worker. `make survive` runs it
// with 200 streams and prints the table.
func TestResumedStreamsEqualUndisturbedOnes(t *testing.T) {
	streams, err := strconv.Atoi(os.Getenv("SPILLWAY_SURVIVE"))
	if err != nil || streams <= 0 {
		t.Skip("`make survive` runs it; TestKilledProcessesLoseNoRequests checks that no stream is interrupted, this test compares the texts")
	}
	p := startProcessFleetOfSize(t, 2, 3)
	s := &streamKillTest{processFleet: p, streamCount: streams, expected: startReferenceWorker(t)}
	t.Logf("%-24s %8s %8s %8s %8s %8s %8s %8s %8s", "killed", "streams", "hit", "resumed", "cut", "wrong", "lost", "doubled", "usage")

	s.runKillRound(t, "a worker", "virginia", func(routes map[string]int) fleet.Node {
		region, zone, worker := splitRoute(mostCommonPrefix(routes, 3))
		return p.findNode(region + "-" + zone + "-" + worker)
	})
	s.runKillRound(t, "a local instance", "frankfurt", func(routes map[string]int) fleet.Node {
		region, zone, _ := splitRoute(mostCommonPrefix(routes, 2))
		return p.findNode(region + "-" + zone + "-local1")
	})
	for _, zone := range []string{"tokyo/a", "tokyo/b"} { // its streams then run in another region
		if out, _, err := runSpillway(t, "drain", "zone", zone, "--force", "--server", adminServerURL("global", "g1")); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.waitForSpill(t)
	s.runKillRound(t, "a peer region's gateway", "tokyo", func(routes map[string]int) fleet.Node {
		region, _, _ := splitRoute(mostCommonPrefix(routes, 1))
		return p.gatewayOf(region)
	})
}

// streamKillTest sends the streams of a round.
type streamKillTest struct {
	*processFleet
	streamCount  int
	expected     func(body string) streamResult
	requestCount int
}

// streamResult is the response that a client received.
type streamResult struct {
	text, finishReason, failure, route, resumed string
	promptTokens, completionTokens              int
}

// splitRoute splits a route into its parts.
func splitRoute(route string) (region, zone, worker string) {
	parts := append(strings.Split(route, "/"), "", "")
	return parts[0], parts[1], parts[2]
}

// mostCommonPrefix returns the most common first parts of routes.
func mostCommonPrefix(routes map[string]int, parts int) (best string) {
	sums := map[string]int{}
	for r, n := range routes {
		key := strings.Join(strings.Split(r, "/")[:parts], "/")
		if sums[key] += n; sums[key] > sums[best] || sums[key] == sums[best] && key < best {
			best = key
		}
	}
	return best
}

// runKillRound starts streams at a region's gateway, kills the node that choose selects by their routes, and checks the
// responses.
func (s *streamKillTest) runKillRound(t *testing.T, what, region string, choose func(map[string]int) fleet.Node) {
	t.Helper()
	var begun atomic.Int64
	var mu sync.Mutex
	routes := map[string]int{}
	results, expected := make([]streamResult, s.streamCount), make([]streamResult, s.streamCount)
	ended := make([]atomic.Bool, s.streamCount)
	var all sync.WaitGroup
	for i := range s.streamCount {
		s.requestCount++
		body := fmt.Sprintf(`{"model":"llama-3.1-8b","messages":[{"role":"user","content":"question %d of the round"}],"max_tokens":%d,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, s.requestCount, 1000+i%50)
		expected[i] = s.expected(body)
		all.Go(func() {
			results[i] = s.sendStream(region, body, func(route string) {
				mu.Lock()
				routes[route]++
				mu.Unlock()
				begun.Add(1)
			})
			ended[i].Store(true)
		})
	}
	waitForSuccess(t, testTimeout, "every stream has begun", func() error {
		if n := begun.Load(); n < int64(s.streamCount) {
			return fmt.Errorf("%d of %d have", n, s.streamCount)
		}
		return nil
	})
	mu.Lock()
	victim := choose(routes)
	mu.Unlock()
	process, err := os.FindProcess(s.ps.PID(victim))
	if err != nil {
		t.Fatal(err)
	}
	s.killedIDs = append(s.killedIDs, victim.ID())
	live := make([]bool, s.streamCount)
	for i := range live {
		live[i] = !ended[i].Load()
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	var hit, resumed, cut, wrong, lost, doubled, usage int
	for i := range results {
		got, want := results[i], expected[i]
		if live[i] && passedThrough(got.route, victim) {
			hit++
		}
		if got.resumed != "" {
			resumed++
		}
		switch {
		case got.failure != "" || got.finishReason == "":
			cut++
			t.Errorf("%s: cut after %d bytes of %d on %s: %s", victim.ID(), len(got.text), len(want.text), got.route, got.failure)
		case got.text != want.text || got.finishReason != want.finishReason:
			wrong++
			missing := (len(want.text) - len(got.text)) / 4
			lost, doubled = lost+max(missing, 0), doubled+max(-missing, 0)
			t.Errorf("%s: the answer of stream %d on %s ends with %q, want %q: %q, want %q", victim.ID(), i, got.route, got.finishReason, want.finishReason, got.text, want.text)
		case got.promptTokens != want.promptTokens || got.completionTokens != want.completionTokens:
			usage++
			t.Errorf("%s: usage %d and %d, want %d and %d", victim.ID(), got.promptTokens, got.completionTokens, want.promptTokens, want.completionTokens)
		}
	}
	t.Logf("%-24s %8d %8d %8d %8d %8d %8d %8d %8d", what, s.streamCount, hit, resumed, cut, wrong, lost, doubled, usage)
	if resumed == 0 {
		t.Errorf("%s died and no stream was resumed: %v", victim.ID(), routes)
	}
}

// passedThrough reports whether a route contains a node.
func passedThrough(route string, n fleet.Node) bool {
	region, zone, worker := splitRoute(route)
	return region == n.Region && (n.Role == "regional" || zone == n.Zone && (n.Role == "local" || worker == n.Name))
}

// waitForSpill waits until Tokyo's gateway sends requests to another region.
func (s *streamKillTest) waitForSpill(t *testing.T) {
	t.Helper()
	waitForSuccess(t, testTimeout, "Tokyo's requests spill", func() error {
		s.requestCount++
		got := s.sendStream("tokyo", fmt.Sprintf(`{"model":"llama-3.1-8b","messages":[{"role":"user","content":"probe %d"}],"max_tokens":1,"stream":true}`, s.requestCount), func(string) {})
		if strings.HasPrefix(got.route, "tokyo/") || got.finishReason == "" {
			return fmt.Errorf("one went to %q: %s", got.route, got.failure)
		}
		return nil
	})
}

// sendStream sends one request and reads the whole response. begun is called once, with the route, after the first token.
func (s *streamKillTest) sendStream(region, body string, begun func(route string)) (result streamResult) {
	key, err := s.ReadTenantKey("acme")
	if err != nil {
		return streamResult{failure: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.gatewayOf(region).Addr["http"].String()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return streamResult{failure: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return readStream(req, begun)
}

var streamClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func readStream(req *http.Request, begun func(route string)) (result streamResult) {
	resp, err := streamClient.Do(req)
	if err != nil {
		return streamResult{failure: err.Error()}
	}
	defer resp.Body.Close()
	result.route = resp.Header.Get(forward.HeaderRoute)
	if resp.StatusCode != http.StatusOK {
		result.failure = resp.Status
		begun(result.route)
		return result
	}
	var text strings.Builder
	in := bufio.NewScanner(resp.Body)
	ids, ends := map[string]bool{}, 0
	for in.Scan() {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			ends++
			continue
		}
		var o struct {
			ID      string
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal(data, &o); err != nil {
			result.failure = "a torn event: " + string(data)
			continue
		}
		if ids[o.ID] = true; o.Error != nil {
			result.failure = string(o.Error)
		}
		for _, c := range o.Choices {
			if text.Len() == 0 && c.Delta.Content != "" {
				begun(result.route)
			}
			text.WriteString(c.Delta.Content)
			result.finishReason += c.Finish
		}
		result.promptTokens, result.completionTokens = o.Usage.Prompt, o.Usage.Completion
	}
	result.text, result.resumed = text.String(), resp.Trailer.Get(forward.HeaderResumed)
	switch {
	case result.failure != "":
	case in.Err() != nil:
		result.failure = in.Err().Error()
	case ends != 1 || len(ids) != 1:
		result.failure = fmt.Sprintf("%d ends, %d ids", ends, len(ids))
	}
	return result
}

// startReferenceWorker starts a worker that is not killed, and returns a function that sends requests to it.
func startReferenceWorker(t *testing.T) func(body string) streamResult {
	t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "llama-3.1-8b", AnswerSeed: fleet.AnswerSeed, Speed: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return func(body string) streamResult {
		req, err := http.NewRequest("POST", w.URL()+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return readStream(req, func(string) {})
	}
}
