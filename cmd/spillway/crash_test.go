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
)

// crashes are three global nodes, as processes, with writers and resolvers that never rest.
type crashes struct {
	*fleet.Planet
	ps    *fleet.Processes
	admin [3]*admin.Client

	mu      sync.Mutex
	acked   map[string]string // reason by "spec VERSION": what a node said is in force
	checked int

	serial  atomic.Uint64
	writes  atomic.Int64    // acknowledged
	unknown atomic.Int64    // that a node died over, or lost the leader over
	flying  atomic.Int64    // applies under way
	midway  int             // kills that met one
	life    [3]atomic.Int64 // odd while the node may be asked; it changes when it is killed and when it is back
	asked   atomic.Int64
	again   atomic.Int64 // that were asked twice, for no answer came in a second
}

// TestLeaderKills kills the Raft leader, kill -9, in the middle of applies, again and again: no write that was
// acknowledged may be lost, and no question to the name servers that are up may fail. SPILLWAY_KILLS says how often.
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
	c := spawnGlobals(t)
	stop := c.busy(t)
	var without, silent []time.Duration
	for range kills {
		w, s := c.killLeader(t)
		without, silent = append(without, w), append(silent, s)
	}
	c.verify(t)
	c.eventuallyMore(t, "writes after the last kill")
	stop()
	c.verify(t)
	slices.Sort(without)
	slices.Sort(silent)
	t.Logf("%d kills of the leader, %d with applies under way, at a heartbeat of 500ms: time without a leader p50 %s, max %s; until the next acknowledged write p50 %s, max %s",
		kills, c.midway, ms(without[kills/2]), ms(without[kills-1]), ms(silent[kills/2]), ms(silent[kills-1]))
	t.Logf("%d applies acknowledged, %d found in the audit by version and reason, 0 lost; %d of unknown outcome", c.writes.Load(), c.checked, c.unknown.Load())
	t.Logf("%d DNS questions to nodes that were up, 0 failed, %d asked twice", c.asked.Load(), c.again.Load())
	if c.checked == 0 || c.asked.Load() == 0 {
		t.Error("nothing was written, or nothing was asked")
	}
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func spawnGlobals(t *testing.T) *crashes {
	t.Helper()
	p := lay(t, 1, 1)
	p.Nodes = p.Of("global")
	binary, err := exec.LookPath("spillway")
	if err != nil {
		t.Fatal(err)
	}
	c := &crashes{Planet: p, acked: map[string]string{}}
	if c.ps, err = fleet.Spawn(p, binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.ps.Stop(ctx); err != nil {
			t.Errorf("stopping the processes: %v", err)
		}
		for _, n := range p.Nodes {
			text, err := os.ReadFile(c.ps.Log(n))
			if err != nil || strings.Contains(string(text), "panic:") || strings.Contains(string(text), "DATA RACE") {
				t.Errorf("%s (%v) says:\n%s", n.Name, err, text)
			} else if t.Failed() {
				t.Logf("%s says last:\n%s", n.Name, text[max(0, len(text)-4000):])
			}
		}
	})
	for i, n := range p.Nodes {
		if c.admin[i], err = admin.Dial(socket("global", n.Name), nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, n.Name+" is ready", func() error { return c.ready(n) })
		c.life[i].Store(1)
	}
	eventually(t, patience, "a first spec is agreed", func() error {
		_, err := c.admin[0].SpecNow(t.Context())
		return err
	})
	return c
}

func (c *crashes) ready(n fleet.Node) error {
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

// busy starts the writers and the resolvers.
func (c *crashes) busy(t *testing.T) (stop func()) {
	text, err := os.ReadFile(c.Spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range c.admin {
		wg.Go(func() { c.write(ctx, t, i, string(text)) })
		wg.Go(func() { c.resolve(ctx, t, i) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// write applies one spec after another through one node, on top of whatever is in force.
func (c *crashes) write(ctx context.Context, t *testing.T, i int, text string) {
	for ; ctx.Err() == nil; time.Sleep(rand.N(30 * time.Millisecond)) {
		if c.life[i].Load()%2 == 0 || c.unverified() > 200 {
			continue
		}
		n := c.serial.Add(1)
		reason := fmt.Sprintf("write %d", n)
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		c.flying.Add(1)
		a, err := c.admin[i].Apply(call, admin.ApplyRequest{
			Name: "spec.yaml", Reason: reason, Text: strings.Replace(text, "ttl: 5s", fmt.Sprintf("ttl: %ds", 5+n%3000), 1),
		})
		c.flying.Add(-1)
		cancel()
		var e *admin.Error
		switch {
		case err == nil && len(a.Changes) > 0:
			c.writes.Add(1)
			c.ack(t, a.Version, reason)
		case err == nil, errors.As(err, &e) && e.Status == http.StatusConflict:
		case errors.As(err, &e) && e.Status == http.StatusBadRequest:
			t.Errorf("an apply was refused: %v", err)
		default:
			c.unknown.Add(1)
		}
	}
}

// unverified is how many acknowledged writes have yet to be looked up: the audit holds 256.
func (c *crashes) unverified() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// ack notes what a node said. Two writes that were both told the same version have overwritten one another.
func (c *crashes) ack(t *testing.T, version uint64, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("spec %d", version)
	if other, ok := c.acked[key]; ok {
		t.Errorf("%s was acknowledged to %q and to %q", key, other, reason)
	}
	c.acked[key] = reason
}

// resolve asks one name server, again and again, while it is up.
func (c *crashes) resolve(ctx context.Context, t *testing.T, i int) {
	server := c.Nodes[i].Addr["dns"]
	subnet := subnets()["tokyo"]
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		life := c.life[i].Load()
		if life%2 == 0 {
			continue
		}
		tries := 0
		var err error
		for ; tries < 4; tries++ { // a resolver asks again after a second
			if err = question(server, subnet); err == nil || c.life[i].Load() != life {
				break
			}
		}
		if c.life[i].Load() != life {
			continue
		}
		c.asked.Add(1)
		if tries > 0 {
			c.again.Add(1)
		}
		if err != nil {
			t.Errorf("%s was up and a question failed: %v", c.Nodes[i].Name, err)
		}
	}
}

func question(server netip.AddrPort, subnet netip.Prefix) error {
	r, err := ask("udp", server, fleet.Service, dnsmessage.TypeA, subnet)
	if err == nil && (r.rcode != dnsmessage.RCodeSuccess || len(r.addrs) == 0) {
		err = fmt.Errorf("answer has rcode %d and %d addresses", r.rcode, len(r.addrs))
	}
	return err
}

// leader is who leads by a node's word.
func (c *crashes) leader(i int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	a, err := c.admin[i].Members(ctx)
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

// killLeader kills the leader at some moment of its writing, and starts it again once another leads. It returns how long
// there was no leader, and how long no write was acknowledged.
func (c *crashes) killLeader(t *testing.T) (without, silent time.Duration) {
	t.Helper()
	victim := -1
	eventually(t, patience, "all agree on a leader", func() error {
		names := []string{c.leader(0), c.leader(1), c.leader(2)}
		victim = slices.IndexFunc(c.Nodes, func(n fleet.Node) bool { return n.Name == names[0] })
		if victim < 0 || names[1] != names[0] || names[2] != names[0] {
			return fmt.Errorf("they name %q", names)
		}
		return nil
	})
	c.verify(t) // so that there is room for more writes
	c.eventuallyMore(t, "writes before a kill")
	for end := time.Now().Add(time.Second); c.flying.Load() == 0 && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		continue
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	n := c.Nodes[victim]
	process, err := os.FindProcess(c.ps.PID(n))
	if err != nil {
		t.Fatal(err)
	}
	c.life[victim].Add(1)
	if c.flying.Load() > 0 {
		c.midway++
	}
	if err := process.Kill(); err != nil {
		t.Fatalf("killing %s: %v", n.Name, err)
	}
	begun, before := time.Now(), c.writes.Load()
	without = eventually(t, patience, "another leads", func() error {
		for i := range c.Nodes {
			if l := c.leader(i); i != victim && l != "" && l != n.Name {
				return nil
			}
		}
		return errors.New("nobody does")
	})
	eventually(t, patience, "a write is acknowledged again", func() error {
		if c.writes.Load() == before {
			return errors.New("none is")
		}
		return nil
	})
	silent = time.Since(begun)
	eventually(t, patience, n.Name+" is gone", func() error {
		if c.ps.PID(n) != 0 {
			return errors.New("it still runs")
		}
		return nil
	})
	if err := c.ps.StartNode(n); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, n.Name+" is back", func() error { return c.ready(n) })
	c.life[victim].Add(1)
	c.verify(t)
	return without, silent
}

func (c *crashes) eventuallyMore(t *testing.T, what string) {
	t.Helper()
	goal := c.writes.Load() + 3
	eventually(t, patience, what, func() error {
		if now := c.writes.Load(); now < goal {
			return fmt.Errorf("%d of %d", now, goal)
		}
		return nil
	})
}

// verify looks up every acknowledged write in the audit of every node, where each stands with the version it was told.
func (c *crashes) verify(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	due := c.acked
	c.acked = map[string]string{}
	c.checked += len(due)
	c.mu.Unlock()
	defer func() {
		if t.Failed() {
			c.describe(t)
		}
	}()
	for i := range c.admin {
		var missing []string
		eventually(t, patience, "every acknowledged write is in the audit of "+c.Nodes[i].Name, func() error {
			a, err := c.admin[i].Audit(t.Context())
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

// describe says where each node stands.
func (c *crashes) describe(t *testing.T) {
	for i, n := range c.Nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		a, err := c.admin[i].Status(ctx)
		cancel()
		if err != nil {
			t.Logf("%s: %v", n.Name, err)
			continue
		}
		t.Logf("%s: spec %d, %+v, %q", n.Name, a.SpecVersion, *a.Raft, a.Notes)
	}
}
