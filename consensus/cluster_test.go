package consensus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"go.uber.org/goleak"
)

const testDomain = "test.spillway"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testCluster is three nodes over loopback TLS.
type testCluster struct {
	t           *testing.T
	ca          *identity.DevCA
	dirs        []string
	certs       []*identity.Certs
	peers       []consensus.RaftPeer
	nodes       []*consensus.Node
	configure   func(*consensus.Config)
	peersSeenBy func(by int) []consensus.RaftPeer // the peers at the addresses at which a node reaches them; nil: peers
}

func newTestCluster(t *testing.T, onDisk bool, tune func(*consensus.Config)) *testCluster {
	t.Helper()
	c := newUnstartedCluster(t, onDisk, tune)
	for i := range 3 {
		c.startNode(i)
	}
	return c
}

// newUnstartedCluster is newTestCluster without starting a node.
func newUnstartedCluster(t *testing.T, onDisk bool, tune func(*consensus.Config)) *testCluster {
	t.Helper()
	ca, err := identity.NewDevCA(t.TempDir(), testDomain)
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, ca: ca, configure: tune, nodes: make([]*consensus.Node, 3)}
	for i := range 3 {
		dir := ""
		if onDisk {
			dir = memoryDir(t)
		}
		c.dirs = append(c.dirs, dir)
		c.certs = append(c.certs, c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGlobal, Name: nodeName(i)}))
		c.nodes[i] = c.newNode(i, "127.0.0.1:0")
		c.peers = append(c.peers, consensus.RaftPeer{ID: nodeName(i), Addr: c.nodes[i].Addr().String()})
	}
	t.Cleanup(c.stopAll)
	return c
}

// memoryDir is a directory in memory where the system has one: a test of the protocol must not wait for other users
// of the disk.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "spillway-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// testHeartbeat is short, so that elections are too, and longer on a machine that is too busy for it: there a leader
// would be deposed every other second, which no test here covers.
func testHeartbeat() time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // 0 where the file is absent
	}
	return time.Duration(min(max(1, load/float64(2*runtime.NumCPU())), 7) * float64(300*time.Millisecond))
}

func nodeName(i int) string { return fmt.Sprintf("g%d", i+1) }

func (c *testCluster) issueCerts(id identity.ID) *identity.Certs {
	c.t.Helper()
	f, err := c.ca.IssueCert(id, c.t.TempDir(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	certs, err := identity.LoadCerts(f, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return certs
}

func (c *testCluster) newNode(i int, listen string) *consensus.Node {
	c.t.Helper()
	cfg := consensus.Config{
		ID: nodeName(i), Dir: c.dirs[i], Listen: listen, Certs: c.certs[i], Heartbeat: testHeartbeat(),
	}
	if testing.Verbose() && os.Getenv("RAFT_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", nodeName(i))
	}
	if c.configure != nil {
		c.configure(&cfg)
	}
	n, err := consensus.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *testCluster) startNode(i int) {
	c.t.Helper()
	if c.nodes[i] == nil {
		c.nodes[i] = c.newNode(i, c.peers[i].Addr)
	}
	peers := c.peers
	if c.peersSeenBy != nil {
		peers = c.peersSeenBy(i)
	}
	c.nodes[i].SetPeers(peers)
	if err := c.nodes[i].Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) stopNode(i int) {
	c.t.Helper()
	if c.nodes[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.nodes[i].Stop(ctx); err != nil {
		c.t.Errorf("stopping %s: %v", nodeName(i), err)
		var stacks strings.Builder // of the goroutines that it waits for
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		c.t.Log(stacks.String())
	}
	c.nodes[i] = nil
}

func (c *testCluster) stopAll() {
	for i := range c.nodes {
		c.stopNode(i)
	}
}

// waitUntil polls until ok, for conditions without a channel.
func (c *testCluster) waitUntil(what string, ok func() bool) {
	c.t.Helper()
	testkit.Eventually(c.t, what, ok)
}

// awaitLeader waits until all running nodes agree on a leader.
func (c *testCluster) awaitLeader() int {
	c.t.Helper()
	at := -1
	c.waitUntil("one leader that all know", func() bool {
		at = slices.IndexFunc(c.nodes, func(n *consensus.Node) bool { return n != nil && n.IsLeader() })
		for _, n := range c.nodes {
			if at < 0 || n != nil && n.Leader() != nodeName(at) {
				return false
			}
		}
		return true
	})
	return at
}

// doAsLeader runs f on the leader, and on the next one if that was deposed meanwhile: on a busy machine this happens
// at any time.
func (c *testCluster) doAsLeader(f func(*consensus.Node) error) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		n := c.nodes[c.awaitLeader()]
		term := n.Status().Term
		err := f(n)
		deposed := !n.IsLeader() || n.Status().Term != term || errors.Is(err, consensus.ErrNotLeader)
		switch {
		case err == nil:
			return
		case !deposed || time.Now().After(end):
			c.t.Fatal(err)
		}
	}
}

// retryChange repeats a membership change, from any node, while a busy machine loses its leaders.
func (c *testCluster) retryChange(change func() error) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := change()
		lost := errors.Is(err, consensus.ErrNoLeader) || errors.Is(err, consensus.ErrUnknownOutcome) || errors.Is(err, consensus.ErrNotLeader)
		switch {
		case err == nil:
			return
		case !lost || time.Now().After(end):
			c.t.Fatal(err)
		}
	}
}

func (c *testCluster) newContext() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	c.t.Cleanup(cancel)
	return ctx
}

// awaitSameState waits until all running nodes hold the same state, and returns its hash.
func (c *testCluster) awaitSameState() string {
	c.t.Helper()
	var hash string
	c.waitUntil("equal states", func() bool {
		hash = ""
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			if h := n.State().Hash(); hash == "" {
				hash = h
			} else if h != hash {
				return false
			}
		}
		return true
	})
	return hash
}

func TestWriteThroughAnyNode(t *testing.T) {
	var newest atomic.Uint64
	c := newTestCluster(t, false, func(cfg *consensus.Config) {
		cfg.OnApply = func(s *consensus.State) { newest.Store(s.Index) }
		cfg.CheckSpec = func(_, next []byte) error {
			if strings.Contains(string(next), "bad") {
				return errors.New("line 1: bad word")
			}
			return nil
		}
	})
	lead := c.awaitLeader()
	follower := c.nodes[(lead+1)%3]
	v, err := follower.PutSpec(c.newContext(), 0, []byte("one"), "alice")
	if err != nil || v != 1 {
		t.Fatalf("first spec through a follower: version %d, %v", v, err)
	}
	if s := follower.State(); s.SpecVersion != 1 || string(s.Spec) != "one" || s.SpecHistory[0].Actor != "alice" {
		t.Fatalf("a follower does not read what it wrote: %+v", s)
	}
	for _, n := range []*consensus.Node{follower, c.nodes[lead]} {
		_, err = n.PutSpec(c.newContext(), 0, []byte("two"), "bob")
		if got := (consensus.ErrConflict{}); !errors.As(err, &got) || got.Current != 1 {
			t.Fatalf("spec based on an old version: %v, want a conflict with 1", err)
		}
		_, err = n.PutSpec(c.newContext(), 1, []byte("bad"), "bob")
		if got := (consensus.ErrRefused{}); !errors.As(err, &got) || got.Reason != "line 1: bad word" {
			t.Fatalf("spec that the check refuses: %v", err)
		}
	}
	if err := follower.PutDrain(c.newContext(), consensus.Drain{Path: "eu/a", Reason: "test", Actor: "alice"}); err != nil {
		t.Fatal(err)
	}
	if err := follower.DeleteDrain(c.newContext(), "eu/b", testAuthor); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("ending a drain that is not there: %v", err)
	}
	if err := follower.RotateTicketKey(c.newContext()); err != nil {
		t.Fatal(err)
	}
	c.awaitSameState()
	for _, n := range c.nodes {
		if s := n.State(); len(s.Drains) != 1 || len(s.TicketKeys) != 1 || len(s.TicketKeys[0].Secret) != 32 {
			t.Fatalf("%s holds %d drains and %d keys, want 1 and 1", n.Status().ID, len(s.Drains), len(s.TicketKeys))
		}
	}
	want := follower.State().Index
	c.waitUntil("OnApply is called with the newest state", func() bool { return newest.Load() >= want })
}

// errOrAccepted returns err or, if it is nil, an error that can be wrapped.
func errOrAccepted(err error) error {
	if err == nil {
		return errors.New("it was taken")
	}
	return err
}

func TestPlanIsFenced(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	by := consensus.Attribution{Actor: "g1", Reason: "gain"}
	c.doAsLeader(func(n *consensus.Node) error { return n.AwaitBarrier(c.newContext()) })
	c.doAsLeader(func(n *consensus.Node) error {
		if n.State().PlanEpoch == 1 { // an earlier try was committed and its answer was lost
			return nil
		}
		term := n.Status().Term
		epoch, err := n.PutPlan(c.newContext(), 0, []byte("plan 1"), by, "costs")
		if s := n.State(); err == nil && (epoch != 1 || string(s.Plan) != "plan 1" || s.PlanTerm < term) {
			t.Fatalf("first plan: epoch %d, plan %q of term %d", epoch, s.Plan, s.PlanTerm)
		} else if o := s.PlanOrigin; err == nil && (o.Actor != "g1" || o.Reason != "gain" || o.Detail != "costs" || o.At.IsZero()) {
			t.Fatalf("the plan comes from %+v", o)
		}
		return err
	})
	c.doAsLeader(func(n *consensus.Node) error {
		if _, err := n.PutPlan(c.newContext(), 0, []byte("plan 0"), by, "costs"); !errors.As(err, new(consensus.ErrConflict)) {
			return fmt.Errorf("plan based on an old epoch: %w", errOrAccepted(err))
		}
		if _, err := n.PutPlan(c.newContext(), 1, nil, by, "costs"); !errors.As(err, new(consensus.ErrRefused)) {
			return fmt.Errorf("empty plan: %w", errOrAccepted(err))
		}
		return nil
	})
	c.doAsLeader(func(n *consensus.Node) error {
		other := c.nodes[(slices.Index(c.nodes, n)+1)%3]
		if _, err := other.PutPlan(c.newContext(), 1, []byte("plan 2"), by, "costs"); !errors.Is(err, consensus.ErrNotLeader) && !other.IsLeader() {
			return fmt.Errorf("plan of a follower: %w", errOrAccepted(err))
		}
		if err := other.AwaitBarrier(c.newContext()); !errors.Is(err, consensus.ErrNotLeader) && !other.IsLeader() {
			return fmt.Errorf("barrier at a follower: %w", errOrAccepted(err))
		}
		return nil
	})
}

func TestDrainsExpireThroughTheLeader(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	n, now := c.nodes[c.awaitLeader()], time.Now()
	for path, until := range map[string]time.Time{"eu": now.Add(time.Minute), "us": now.Add(time.Hour), "ap": {}} {
		if err := n.PutDrain(c.newContext(), consensus.Drain{Path: path, Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	c.doAsLeader(func(n *consensus.Node) error {
		if err := n.ExpireDrains(c.newContext(), now.Add(time.Minute)); err != nil {
			return err
		}
		s, err := n.ReadLinearizable(c.newContext())
		if err != nil {
			return err
		}
		var left []string
		for _, d := range s.Drains {
			left = append(left, d.Path)
		}
		if !slices.Equal(left, []string{"ap", "us"}) {
			return fmt.Errorf("left in force: %v, want ap and us, in order", left)
		}
		return nil
	})
}

func TestLeaderLossAndReturn(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	first := c.awaitLeader()
	if _, err := c.nodes[first].PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.stopNode(first)
	up := c.nodes[(first+1)%3]
	if v, err := up.PutSpec(c.newContext(), 1, []byte("two"), "b"); err != nil || v != 2 {
		t.Fatalf("spec right after the leader stopped: version %d, %v", v, err)
	}
	if next := c.awaitLeader(); next == first {
		t.Fatal("a stopped node leads")
	}
	c.startNode(first)
	c.awaitLeader()
	c.awaitSameState()
	if s := c.nodes[first].State(); s.SpecVersion != 2 || string(s.SpecHistory[1].Body) != "one" {
		t.Fatalf("the returned node is at version %d", s.SpecVersion)
	}
	if st := c.nodes[first].Status(); len(st.Voters) != 3 || st.Leader == "" || st.AppliedIndex == 0 {
		t.Fatalf("status after the return is %+v", st)
	}
}

// TestLeaderCrash kills the leader, writes through a survivor at once, and brings the dead node back.
func TestLeaderCrash(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	first := c.awaitLeader()
	if _, err := c.nodes[first].PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.awaitSameState()
	c.nodes[first].Kill()
	c.nodes[first] = nil
	begin := time.Now()
	if v, err := c.nodes[(first+1)%3].PutSpec(c.newContext(), 1, []byte("two"), "b"); err != nil || v != 2 {
		t.Fatalf("spec right after the leader died: version %d, %v", v, err)
	}
	t.Logf("writing took %s after the crash, at a heartbeat of %s", time.Since(begin).Round(time.Millisecond), testHeartbeat())
	c.startNode(first)
	c.awaitLeader()
	c.awaitSameState()
}

// TestFollowerCatchesUpBySnapshot stops a follower until the entries it needs are gone from the leader's log.
func TestFollowerCatchesUpBySnapshot(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	lead := c.awaitLeader()
	behind := (lead + 1) % 3
	c.stopNode(behind)
	for i := range 30 {
		if err := c.nodes[lead].PutDrain(c.newContext(), consensus.Drain{Path: fmt.Sprintf("eu/z%02d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nodes[lead].CompactLog(); err != nil {
		t.Fatal(err)
	}
	if first, err := c.nodes[lead].FirstLogIndex(); err != nil || first < 20 {
		t.Fatalf("the leader's log still begins at %d, %v", first, err)
	}
	c.startNode(behind)
	c.awaitLeader()
	c.awaitSameState()
	if got := len(c.nodes[behind].State().Drains); got != 30 {
		t.Fatalf("the follower has %d drains, want 30", got)
	}
}

func TestRestartWithoutQuorum(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	n := c.nodes[c.awaitLeader()]
	for v := range uint64(20) {
		if _, err := n.PutSpec(c.newContext(), v, fmt.Appendf(nil, "spec %d", v+1), "a"); err != nil {
			t.Fatal(err)
		}
	}
	want := c.awaitSameState()
	c.stopAll()

	c.startNode(1)
	alone := c.nodes[1]
	c.waitUntil("committed state without a quorum", func() bool { return alone.State().Hash() == want })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := alone.PutDrain(ctx, consensus.Drain{Path: "eu"}); !errors.Is(err, consensus.ErrNoLeader) {
		t.Fatalf("write without a quorum: %v, want ErrNoLeader", err)
	}

	c.startNode(0)
	c.startNode(2)
	lead := c.awaitLeader() // so no voter was lost
	if v, err := c.nodes[(lead+1)%3].PutSpec(c.newContext(), 20, []byte("more"), "a"); err != nil || v != 21 {
		t.Fatalf("spec after all returned: version %d, %v", v, err)
	}
}

func TestUnknownPeersAreRefused(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	n := c.nodes[c.awaitLeader()]
	foreign, err := identity.NewDevCA(t.TempDir(), testDomain)
	if err != nil {
		t.Fatal(err)
	}
	mine := c.ca
	c.ca = foreign
	stranger := c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGlobal, Name: "g1"})
	c.ca = mine
	gateway := c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGateway, Region: "eu", Name: "gw"})
	before := n.RefusedConns()
	for i, certs := range []*identity.Certs{stranger, gateway} {
		for _, alpn := range []string{"spillway-raft/1", "spillway-propose/1"} {
			checkConnRefused(t, n.Addr().String(), certs, alpn)
		}
		want := before + uint64(2*(i+1))
		c.waitUntil("refusals counted", func() bool { return n.RefusedConns() >= want })
	}
	if n.RefusedConns() != before+4 {
		t.Fatalf("%d refusals counted, want 4", n.RefusedConns()-before)
	}
	if _, err := n.PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatalf("the cluster no longer writes: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	c := newTestCluster(t, false, nil)
	_, err := consensus.New(consensus.Config{ID: "g1", Listen: c.peers[1].Addr, Certs: c.certs[0]})
	if err == nil || !strings.Contains(err.Error(), c.peers[1].Addr) || !strings.Contains(err.Error(), "g1") {
		t.Fatalf("error is %v, want one that names the port and who wanted it", err)
	}
}
