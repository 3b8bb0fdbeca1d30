package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// crashTestCluster is a cluster of three global nodes, as processes, with continuous writes and DNS queries.
type crashTestCluster struct {
	*fleet.Files
	ps    *fleet.Processes
	admin [3]*admin.Client

	mu           sync.Mutex
	acked        map[string]string // reason by "spec VERSION", of acknowledged writes
	auditedCount int

	writeSerial      atomic.Uint64
	ackedCount       atomic.Int64    // acknowledged writes
	unknownCount     atomic.Int64    // writes of unknown outcome: the node was killed, or lost the leader
	appliesInFlight  atomic.Int64    // writes in flight
	killsDuringApply int             // kills while a write was in flight
	aliveEpoch       [3]atomic.Int64 // odd while the node may be queried; it changes at a kill and at a restart
	queryCount       atomic.Int64
	retriedQueries   atomic.Int64 // queries repeated after a second without an answer
}

// TestLeaderKills kills the Raft leader with SIGKILL during writes, SPILLWAY_KILLS times: no acknowledged write may be lost,
// and no query to a running name server may fail.
func TestLeaderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	kills := 3
	if text := os.Getenv("SPILLWAY_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := spawnGlobalNodes(t)
	stop := c.startLoad(t)
	var without, silent []time.Duration
	for range kills {
		w, s := c.killLeader(t)
		without, silent = append(without, w), append(silent, s)
	}
	c.verifyAudit(t)
	c.waitForMoreWrites(t, "writes after the last kill")
	stop()
	c.verifyAudit(t)
	slices.Sort(without)
	slices.Sort(silent)
	t.Logf("%d kills of the leader, %d with applies under way, at a heartbeat of 500ms: time without a leader p50 %s, max %s; until the next acknowledged write p50 %s, max %s",
		kills, c.killsDuringApply, roundToMillis(without[kills/2]), roundToMillis(without[kills-1]), roundToMillis(silent[kills/2]), roundToMillis(silent[kills-1]))
	t.Logf("%d writes acknowledged, %d found in the audit log by version and reason, 0 lost; %d of unknown outcome", c.ackedCount.Load(), c.auditedCount, c.unknownCount.Load())
	t.Logf("%d DNS queries to running nodes, 0 failed, %d repeated", c.queryCount.Load(), c.retriedQueries.Load())
	if c.auditedCount == 0 || c.queryCount.Load() == 0 {
		t.Error("no write or no query was made")
	}
}

func roundToMillis(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func spawnGlobalNodes(t *testing.T) *crashTestCluster {
	t.Helper()
	p := writeTestFleet(t, 1, 1)
	p.Nodes = p.NodesByRole("global")
	binary, err := exec.LookPath("spillway")
	if err != nil {
		t.Fatal(err)
	}
	c := &crashTestCluster{Files: p, acked: map[string]string{}}
	if c.ps, err = fleet.SpawnAll(p, binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := c.ps.Stop(ctx); err != nil {
			t.Errorf("stopping the processes: %v", err)
		}
		for _, n := range p.Nodes {
			text, err := os.ReadFile(c.ps.LogPath(n))
			if err != nil || strings.Contains(string(text), "panic:") || strings.Contains(string(text), "DATA RACE") {
				t.Errorf("%s ended (%v), its log:\n%s", n.Name, err, text)
			} else if t.Failed() {
				t.Logf("end of the log of %s:\n%s", n.Name, text[max(0, len(text)-4000):])
			}
		}
	})
	for i, n := range p.Nodes {
		if c.admin[i], err = admin.Dial(adminServerURL("global", n.Name), nil); err != nil {
			t.Fatal(err)
		}
		waitForSuccess(t, testTimeout, n.Name+" is ready", func() error { return c.checkReady(n) })
		c.aliveEpoch[i].Store(1)
	}
	waitForSuccess(t, testTimeout, "a first spec is agreed", func() error {
		_, err := c.admin[0].GetSpecLinearizable(t.Context())
		return err
	})
	return c
}

func (c *crashTestCluster) checkReady(n fleet.Node) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	resp, err := client.Get(fmt.Sprintf("http://%s/readyz", n.Addr["metrics"]))
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", n.Name, resp.Status)
	}
	return nil
}

// startLoad starts the writes and the DNS queries.
func (c *crashTestCluster) startLoad(t *testing.T) (stop func()) {
	text, err := os.ReadFile(c.SpecPath())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range c.admin {
		wg.Go(func() { c.writeSpecs(ctx, t, i, string(text)) })
		wg.Go(func() { c.queryContinuously(ctx, t, i) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// writeSpecs applies one spec after another at one node, without --based-on.
func (c *crashTestCluster) writeSpecs(ctx context.Context, t *testing.T, i int, text string) {
	for ; ctx.Err() == nil; testkit.PauseUnlessDone(ctx, rand.N(30*time.Millisecond)) {
		if c.aliveEpoch[i].Load()%2 == 0 || c.countUnverified() > 200 {
			continue
		}
		n := c.writeSerial.Add(1)
		reason := fmt.Sprintf("write %d", n)
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		c.appliesInFlight.Add(1)
		a, err := c.admin[i].ApplySpec(call, admin.ApplyRequest{
			Name: "spec.yaml", Reason: reason, Text: strings.Replace(text, "ttl: 5s", fmt.Sprintf("ttl: %ds", 5+n%3000), 1),
		})
		c.appliesInFlight.Add(-1)
		cancel()
		var e *admin.Error
		switch {
		case err == nil && len(a.Changes) > 0:
			c.ackedCount.Add(1)
			c.recordAck(t, a.Version, reason)
		case err == nil, errors.As(err, &e) && e.Status == http.StatusConflict:
		case errors.As(err, &e) && e.Status == http.StatusBadRequest:
			t.Errorf("an apply was refused: %v", err)
		default:
			c.unknownCount.Add(1)
		}
	}
}

// countUnverified counts the acknowledged writes that are not yet looked up. The audit log stores 256 records.
func (c *crashTestCluster) countUnverified() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// recordAck records an acknowledged write. Two writes acknowledged with the same version have overwritten each other.
func (c *crashTestCluster) recordAck(t *testing.T, version uint64, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("spec %d", version)
	if other, ok := c.acked[key]; ok {
		t.Errorf("%s was acknowledged to %q and to %q", key, other, reason)
	}
	c.acked[key] = reason
}

// queryContinuously queries one name server continuously while it runs.
func (c *crashTestCluster) queryContinuously(ctx context.Context, t *testing.T, i int) {
	server := c.Nodes[i].Addr["dns"]
	subnet := clientSubnets()["tokyo"]
	for ; ctx.Err() == nil; testkit.PauseUnlessDone(ctx, 5*time.Millisecond) {
		life := c.aliveEpoch[i].Load()
		if life%2 == 0 {
			continue
		}
		tries := 0
		var err error
		for ; tries < 4; tries++ { // a resolver repeats a query after a second
			if err = checkServiceAnswer(server, subnet); err == nil || c.aliveEpoch[i].Load() != life {
				break
			}
		}
		if c.aliveEpoch[i].Load() != life {
			continue
		}
		c.queryCount.Add(1)
		if tries > 0 {
			c.retriedQueries.Add(1)
		}
		if err != nil {
			t.Errorf("a query to %s failed while it ran: %v", c.Nodes[i].Name, err)
		}
	}
}

func checkServiceAnswer(server netip.AddrPort, subnet netip.Prefix) error {
	r, err := queryDNS("udp", server, fleet.ServiceName, dnsmessage.TypeA, subnet)
	if err == nil && (r.rcode != dnsmessage.RCodeSuccess || len(r.addrs) == 0) {
		err = fmt.Errorf("answer has rcode %d and %d addresses", r.rcode, len(r.addrs))
	}
	return err
}

// leaderSeenBy returns the leader according to a node.
func (c *crashTestCluster) leaderSeenBy(i int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	a, err := c.admin[i].ListMembers(ctx)
	if err != nil {
		return ""
	}
	for _, m := range a.Members {
		if m.Leader {
			return m.Name
		}
	}
	return ""
}

// killLeader kills the leader during a write and restarts it once there is another leader. It returns how long there was no
// leader, and how long no write was acknowledged.
func (c *crashTestCluster) killLeader(t *testing.T) (without, silent time.Duration) {
	t.Helper()
	victim := -1
	waitForSuccess(t, testTimeout, "all agree on a leader", func() error {
		names := []string{c.leaderSeenBy(0), c.leaderSeenBy(1), c.leaderSeenBy(2)}
		victim = slices.IndexFunc(c.Nodes, func(n fleet.Node) bool { return n.Name == names[0] })
		if victim < 0 || names[1] != names[0] || names[2] != names[0] {
			return fmt.Errorf("they name %q", names)
		}
		return nil
	})
	c.verifyAudit(t) // later writes displace the records of earlier ones
	c.waitForMoreWrites(t, "writes before a kill")
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for c.appliesInFlight.Load() == 0 && soon.Err() == nil {
		testkit.PauseUnlessDone(soon, 100*time.Microsecond)
	}
	testkit.PauseUnlessDone(t.Context(), rand.N(10*time.Millisecond)) // a random moment within the write
	n := c.Nodes[victim]
	process, err := os.FindProcess(c.ps.PID(n))
	if err != nil {
		t.Fatal(err)
	}
	c.aliveEpoch[victim].Add(1)
	if c.appliesInFlight.Load() > 0 {
		c.killsDuringApply++
	}
	if err := process.Kill(); err != nil {
		t.Fatalf("killing %s: %v", n.Name, err)
	}
	begun, before := time.Now(), c.ackedCount.Load()
	without = waitForSuccess(t, testTimeout, "another leads", func() error {
		for i := range c.Nodes {
			if l := c.leaderSeenBy(i); i != victim && l != "" && l != n.Name {
				return nil
			}
		}
		return errors.New("no node does")
	})
	waitForSuccess(t, testTimeout, "a write is acknowledged again", func() error {
		if c.ackedCount.Load() == before {
			return errors.New("none is")
		}
		return nil
	})
	silent = time.Since(begun)
	waitForSuccess(t, testTimeout, n.Name+" is gone", func() error {
		if c.ps.PID(n) != 0 {
			return errors.New("it still runs")
		}
		return nil
	})
	if err := c.ps.StartNode(n); err != nil {
		t.Fatal(err)
	}
	waitForSuccess(t, testTimeout, n.Name+" is back", func() error { return c.checkReady(n) })
	c.aliveEpoch[victim].Add(1)
	c.verifyAudit(t)
	return without, silent
}

func (c *crashTestCluster) waitForMoreWrites(t *testing.T, what string) {
	t.Helper()
	goal := c.ackedCount.Load() + 3
	waitForSuccess(t, testTimeout, what, func() error {
		if now := c.ackedCount.Load(); now < goal {
			return fmt.Errorf("%d of %d", now, goal)
		}
		return nil
	})
}

// verifyAudit checks that the audit log of every node contains every acknowledged write with its version.
func (c *crashTestCluster) verifyAudit(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	due := c.acked
	c.acked = map[string]string{}
	c.auditedCount += len(due)
	c.mu.Unlock()
	defer func() {
		if t.Failed() {
			c.logNodeStates(t)
		}
	}()
	for i := range c.admin {
		var missing []string
		waitForSuccess(t, testTimeout, "every acknowledged write is in the audit of "+c.Nodes[i].Name, func() error {
			a, err := c.admin[i].ListAudit(t.Context())
			if err != nil {
				return err
			}
			missing = missing[:0]
			found := map[string]string{}
			for _, r := range a.Records {
				found[r.Subject] = r.Reason
			}
			for version, reason := range due {
				if found[version] != reason {
					missing = append(missing, fmt.Sprintf("%s is %q and was acknowledged as %q", version, found[version], reason))
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("%d of %d: %s", len(missing), len(due), strings.Join(missing[:min(3, len(missing))], "; "))
			}
			return nil
		})
	}
}

// logNodeStates logs the Raft state of each node.
func (c *crashTestCluster) logNodeStates(t *testing.T) {
	for i, n := range c.Nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		a, err := c.admin[i].GetStatus(ctx)
		cancel()
		if err != nil {
			t.Logf("%s: %v", n.Name, err)
			continue
		}
		t.Logf("%s: spec %d, %+v, %q", n.Name, a.SpecVersion, *a.Raft, a.Notes)
	}
}
