package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/admin"
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
