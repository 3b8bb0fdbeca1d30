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

// processes is a planet of real processes under load.
type processes struct {
	*world
	ps     *fleet.Processes
	load   *load.Generator
	killed []string // node IDs
}

// TestKills kills one process of every tier, kill -9, while requests keep coming through DNS. What had received nothing
// of its answer must be answered elsewhere, and no name may go unresolved. Streams that had begun go on elsewhere, but for
// those of clients whose own gateway died.
func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	p := spawn(t)
	if p.Layout.OneAddress {
		t.Skip("DNS cannot tell gateways apart that share an address: this needs the rest of 127.0.0.0/8")
	}
	finish := p.begin(t)
	p.until(t, 20, "requests flow")

	p.kill(t, p.find("virginia-a-w1"))
	p.until(t, 35, "requests flow without a worker")

	p.kill(t, p.find("frankfurt-b-local1"))
	p.until(t, 35, "requests flow without a local")
	if r := p.load.Report(); r.Cut > 0 {
		t.Errorf("%d streams were cut by the death of a worker or a local: want all of them resumed", r.Cut)
	}

	p.kill(t, p.gateway("tokyo"))
	took := eventually(t, patience, "every name server sends Tokyo's clients elsewhere", func() error { return p.steered(places("tokyo")) })
	t.Logf("clients were sent elsewhere %s after a gateway's death", took.Round(time.Millisecond))
	p.until(t, 35, "requests flow without a gateway")

	p.killLeader(t)
	p.until(t, 40, "requests flow without the leader")
	p.judge(t, finish())
}

// spawn starts a planet of processes that are this test binary under another name; see TestMain.
func spawn(t *testing.T) *processes { return spawnWith(t, 2, 2) }

// spawnWith is spawn with so many zones in each region, and workers in each zone.
func spawnWith(t *testing.T, zones, workers int) *processes {
	t.Helper()
	p := &processes{world: &world{Planet: lay(t, zones, workers)}}
	binary, err := exec.LookPath("spillway")
	if err != nil {
		t.Fatal(err)
	}
	if p.ps, err = fleet.Spawn(p.Planet, binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.checkLogs(t)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.ps.Stop(ctx); err != nil {
			t.Errorf("stopping the processes: %v", err)
		}
	})
	eventually(t, patience, "every node is ready", p.ready)
	eventually(t, patience, "every client is sent to the region beside it", func() error { return p.steered(places()) })
	return p
}

// checkLogs fails on nodes that ended by themselves, and shows what they said when the test failed.
func (p *processes) checkLogs(t *testing.T) {
	for id, err := range p.ps.Exited() {
		if !slices.Contains(p.killed, id) {
			t.Errorf("%s ended by itself: %v", id, err)
		}
	}
	trouble := regexp.MustCompile(`(?m)^.*(level=WARN|level=ERROR|panic:|DATA RACE).*$`)
	for _, n := range p.Nodes {
		text, err := os.ReadFile(p.ps.Log(n))
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(string(text), "DATA RACE") || strings.Contains(string(text), "panic:") {
			t.Errorf("%s says:\n%s", n.ID(), text)
		}
		if lines := trouble.FindAllString(string(text), 15); t.Failed() && len(lines) > 0 {
			t.Logf("%s says:\n%s", n.ID(), strings.Join(lines, "\n"))
		}
	}
}

// begin sends about ten requests per second from all three sites until the returned function is called, which waits for
// the last answer.
func (p *processes) begin(t *testing.T) func() *load.Report {
	t.Helper()
	source, err := load.NewPoisson(load.Poisson{Rate: 10, Prompt: load.Lengths{Median: 100, P90: 300, Max: 1000}, Output: load.Lengths{Median: 20, P90: 60, Max: 120}, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	key, err := p.Key("acme")
	if err != nil {
		t.Fatal(err)
	}
	cfg := load.Config{
		Source: source, Models: []string{"llama-3.1-8b", "qwen2.5-7b"}, Key: key, Stream: true, Grace: patience,
		Target: load.Target{Service: strings.TrimSuffix(fleet.Service, "."), Port: int(p.gateway("tokyo").Addr["http"].Port())},
	}
	for _, a := range p.DNS() {
		cfg.Target.DNS = append(cfg.Target.DNS, a.String())
	}
	for i, s := range fleet.Sites()[:3] {
		source, _ := p.Source(i)
		cfg.Clients = append(cfg.Clients, load.Client{Name: s.City, Source: source})
	}
	if p.load, err = load.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.load.Run(ctx) }()
	finish := func() *load.Report {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("sending: %v", err)
		}
		ended <- nil // for a second call
		return p.load.Report()
	}
	t.Cleanup(func() { finish() })
	return finish
}

// until waits for that many more whole answers.
func (p *processes) until(t *testing.T, more uint64, what string) {
	t.Helper()
	goal := p.load.Report().OK + more
	eventually(t, patience, what, func() error {
		if r := p.load.Report(); r.OK < goal {
			return fmt.Errorf("%d answers of %d; %s", r.OK, goal, oneLine(r))
		}
		return nil
	})
}

func (p *processes) find(id string) fleet.Node {
	i := slices.IndexFunc(p.Nodes, func(n fleet.Node) bool { return n.ID() == id })
	return p.Nodes[i]
}

// kill gives a process no chance to say goodbye.
func (p *processes) kill(t *testing.T, n fleet.Node) {
	t.Helper()
	process, err := os.FindProcess(p.ps.PID(n))
	if err != nil {
		t.Fatal(err)
	}
	p.killed = append(p.killed, n.ID())
	if err := process.Kill(); err != nil {
		t.Fatalf("killing %s: %v", n.ID(), err)
	}
	r := p.load.Report()
	t.Logf("killed %s at %s, %d requests in flight", n.ID(), r.Elapsed.Round(time.Millisecond), r.InFlight)
	eventually(t, patience, n.ID()+" is gone", func() error {
		if p.ps.PID(n) != 0 {
			return fmt.Errorf("it still runs")
		}
		return nil
	})
}

// killLeader kills the Raft leader and waits until the others have another.
func (p *processes) killLeader(t *testing.T) {
	t.Helper()
	leader := func(without string) (name string, err error) {
		for _, n := range p.Of("global") {
			if n.Name == without {
				continue
			}
			var s admin.Status
			out, _, err := spillway(t, "status", "-o", "json", "--server", socket("global", n.Name))
			if err != nil {
				return "", err
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return "", err
			}
			switch {
			case s.Raft.Leader == "" || s.Raft.Leader == without:
				return "", fmt.Errorf("%s knows no other leader", n.Name)
			case name != "" && name != s.Raft.Leader:
				return "", fmt.Errorf("%s and %s are both said to lead", name, s.Raft.Leader)
			}
			name = s.Raft.Leader
		}
		return name, nil
	}
	old, err := leader("")
	if err != nil {
		t.Fatal(err)
	}
	p.kill(t, p.find(old))
	took := eventually(t, patience, "another leader is elected", func() error {
		_, err := leader(old)
		return err
	})
	t.Logf("another leader was elected %s after the leader's death", took.Round(time.Millisecond))
}

// judge reads the report the way a user would feel it.
func (p *processes) judge(t *testing.T, r *load.Report) {
	t.Helper()
	t.Logf("%s, %d requests, %d ok, %d refused, %d cut mid-stream, %d lost, %d without an address, %d abandoned, %d retried elsewhere",
		r.Elapsed.Round(time.Millisecond), r.Sent, r.OK, r.Refused, r.Cut, r.Lost, r.Nowhere, r.Abandoned, r.Retried)
	t.Logf("DNS: %d resolutions, %d failed; %d queries, %d without an answer", r.DNS.Resolutions, r.DNS.FailedResolutions, r.DNS.Queries, r.DNS.FailedQueries)
	for _, region := range r.Regions {
		t.Logf("%s: %d ok, %d cut, TTFT p50 %s, p99 %s", region.Name, region.OK, region.Cut, region.TTFT.P50.Round(time.Millisecond), region.TTFT.P99.Round(time.Millisecond))
	}
	if r.DNS.FailedResolutions+r.Nowhere > 0 || r.DNS.Resolutions == 0 {
		t.Errorf("%d of %d resolutions failed, %d requests had no address: want none", r.DNS.FailedResolutions, r.DNS.Resolutions, r.Nowhere)
	}
	if r.Lost+r.Refused+r.Abandoned > 0 {
		t.Errorf("%d requests were lost, %d refused and %d abandoned: want none; %+v", r.Lost, r.Refused, r.Abandoned, r.Codes)
	}
	if r.Sent != r.OK+r.Cut {
		t.Errorf("%d requests were sent, %d answered and %d cut", r.Sent, r.OK, r.Cut)
	}
	if len(p.killed) != 4 {
		t.Errorf("killed %v in %s, want one of each tier", p.killed, filepath.Base(p.Dir))
	}
}
