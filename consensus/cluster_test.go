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
	"go.uber.org/goleak"
)

const domain = "test.spillway"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is three nodes over loopback TLS.
type cluster struct {
	t     *testing.T
	ca    *identity.DevCA
	dirs  []string
	certs []*identity.Certs
	peers []consensus.Peer
	nodes []*consensus.Node
	tune  func(*consensus.Config)
	seen  func(by int) []consensus.Peer // the peers at the addresses at which a node reaches them; nil: peers
}

func newCluster(t *testing.T, onDisk bool, tune func(*consensus.Config)) *cluster {
	t.Helper()
	c := layCluster(t, onDisk, tune)
	for i := range 3 {
		c.start(i)
	}
	return c
}

// layCluster is newCluster without starting a node.
func layCluster(t *testing.T, onDisk bool, tune func(*consensus.Config)) *cluster {
	t.Helper()
	ca, err := identity.NewDevCA(t.TempDir(), domain)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, ca: ca, tune: tune, nodes: make([]*consensus.Node, 3)}
	for i := range 3 {
		dir := ""
		if onDisk {
			dir = memoryDir(t)
		}
		c.dirs = append(c.dirs, dir)
		c.certs = append(c.certs, c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: name(i)}))
		c.nodes[i] = c.make(i, "127.0.0.1:0")
		c.peers = append(c.peers, consensus.Peer{ID: name(i), Addr: c.nodes[i].Addr().String()})
	}
	t.Cleanup(c.stopAll)
	return c
}

// memoryDir is a folder in memory where the system has one: a test of the protocol must not wait for the disk's other
// users.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "spillway-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// heartbeat is short, so that elections are, and longer on a machine that is too busy to keep to it: there a leader would
// be deposed every other second, which no test here is about.
func heartbeat() time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // 0 where there is none
	}
	return time.Duration(min(max(1, load/float64(2*runtime.NumCPU())), 7) * float64(300*time.Millisecond))
}

func name(i int) string { return fmt.Sprintf("g%d", i+1) }

func (c *cluster) cert(id identity.ID) *identity.Certs {
	c.t.Helper()
	f, err := c.ca.Issue(id, c.t.TempDir(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	certs, err := identity.Load(f, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return certs
}

func (c *cluster) make(i int, listen string) *consensus.Node {
	c.t.Helper()
	cfg := consensus.Config{
		ID: name(i), Dir: c.dirs[i], Listen: listen, Certs: c.certs[i], Heartbeat: heartbeat(),
	}
	if testing.Verbose() && os.Getenv("RAFT_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name(i))
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	n, err := consensus.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) start(i int) {
	c.t.Helper()
	if c.nodes[i] == nil {
		c.nodes[i] = c.make(i, c.peers[i].Addr)
	}
	peers := c.peers
	if c.seen != nil {
		peers = c.seen(i)
	}
	c.nodes[i].SetPeers(peers)
	if err := c.nodes[i].Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) stop(i int) {
	c.t.Helper()
	if c.nodes[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.nodes[i].Stop(ctx); err != nil {
		c.t.Errorf("stopping %s: %v", name(i), err)
		var stacks strings.Builder // what it waits for
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		c.t.Log(stacks.String())
	}
	c.nodes[i] = nil
}

func (c *cluster) stopAll() {
	for i := range c.nodes {
		c.stop(i)
	}
}

// eventually polls until ok, for things that no channel tells.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("never came true: %s", what)
		}
	}
}

// leader waits until all nodes up agree on one.
func (c *cluster) leader() int {
	c.t.Helper()
	at := -1
	c.eventually("one leader that all know", func() bool {
		at = slices.IndexFunc(c.nodes, func(n *consensus.Node) bool { return n != nil && n.IsLeader() })
		for _, n := range c.nodes {
			if at < 0 || n != nil && n.Leader() != name(at) {
				return false
			}
		}
		return true
	})
	return at
}

// leading has the leader do something, and whoever leads next if it was deposed meanwhile: on a busy machine that
// happens at any time.
func (c *cluster) leading(f func(*consensus.Node) error) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		n := c.nodes[c.leader()]
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

// insist makes a change of members, from any node, again for as long as a busy machine loses its leaders over it.
func (c *cluster) insist(change func() error) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
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

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

// converge waits until all nodes up hold the same state, and returns its hash.
func (c *cluster) converge() string {
	c.t.Helper()
	var hash string
	c.eventually("equal states", func() bool {
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
	var told atomic.Uint64
	c := newCluster(t, false, func(cfg *consensus.Config) {
		cfg.OnApply = func(s *consensus.State) { told.Store(s.Index) }
		cfg.CheckSpec = func(_, next []byte) error {
			if strings.Contains(string(next), "bad") {
				return errors.New("line 1: bad word")
			}
			return nil
		}
	})
	lead := c.leader()
	follower := c.nodes[(lead+1)%3]
	v, err := follower.PutSpec(c.ctx(), 0, []byte("one"), "alice")
	if err != nil || v != 1 {
		t.Fatalf("first spec through a follower: version %d, %v", v, err)
	}
	if s := follower.State(); s.SpecVersion != 1 || string(s.Spec) != "one" || s.SpecHistory[0].Actor != "alice" {
		t.Fatalf("a follower does not read what it wrote: %+v", s)
	}
	for _, n := range []*consensus.Node{follower, c.nodes[lead]} {
		_, err = n.PutSpec(c.ctx(), 0, []byte("two"), "bob")
		if got := (consensus.ErrConflict{}); !errors.As(err, &got) || got.Current != 1 {
			t.Fatalf("spec based on an old version: %v, want a conflict with 1", err)
		}
		_, err = n.PutSpec(c.ctx(), 1, []byte("bad"), "bob")
		if got := (consensus.ErrRefused{}); !errors.As(err, &got) || got.Reason != "line 1: bad word" {
			t.Fatalf("spec that the check refuses: %v", err)
		}
	}
	if err := follower.PutDrain(c.ctx(), consensus.Drain{Path: "eu/a", Reason: "test", Actor: "alice"}); err != nil {
		t.Fatal(err)
	}
	if err := follower.DeleteDrain(c.ctx(), "eu/b", by); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("ending a drain that is not there: %v", err)
	}
	if err := follower.RotateTicketKey(c.ctx()); err != nil {
		t.Fatal(err)
	}
	c.converge()
	for _, n := range c.nodes {
		if s := n.State(); len(s.Drains) != 1 || len(s.TicketKeys) != 1 || len(s.TicketKeys[0].Secret) != 32 {
			t.Fatalf("%s holds %d drains and %d keys, want 1 and 1", n.Status().ID, len(s.Drains), len(s.TicketKeys))
		}
	}
	want := follower.State().Index
	c.eventually("OnApply is told of the newest state", func() bool { return told.Load() >= want })
}

// orNothing is an error that can be wrapped, whatever came.
func orNothing(err error) error {
	if err == nil {
		return errors.New("it was taken")
	}
	return err
}

func TestPlanIsFenced(t *testing.T) {
	c := newCluster(t, false, nil)
	by := consensus.By{Actor: "g1", Reason: "gain"}
	c.leading(func(n *consensus.Node) error { return n.Barrier(c.ctx()) })
	c.leading(func(n *consensus.Node) error {
		if n.State().PlanEpoch == 1 { // a first try was agreed on without its author hearing so
			return nil
		}
		term := n.Status().Term
		epoch, err := n.PutPlan(c.ctx(), 0, []byte("plan 1"), by, "costs")
		if s := n.State(); err == nil && (epoch != 1 || string(s.Plan) != "plan 1" || s.PlanTerm < term) {
			t.Fatalf("first plan: epoch %d, plan %q of term %d", epoch, s.Plan, s.PlanTerm)
		} else if o := s.PlanOrigin; err == nil && (o.Actor != "g1" || o.Reason != "gain" || o.Detail != "costs" || o.At.IsZero()) {
			t.Fatalf("the plan comes from %+v", o)
		}
		return err
	})
	c.leading(func(n *consensus.Node) error {
		if _, err := n.PutPlan(c.ctx(), 0, []byte("plan 0"), by, "costs"); !errors.As(err, new(consensus.ErrConflict)) {
			return fmt.Errorf("plan based on an old epoch: %w", orNothing(err))
		}
		if _, err := n.PutPlan(c.ctx(), 1, nil, by, "costs"); !errors.As(err, new(consensus.ErrRefused)) {
			return fmt.Errorf("empty plan: %w", orNothing(err))
		}
		return nil
	})
	c.leading(func(n *consensus.Node) error {
		other := c.nodes[(slices.Index(c.nodes, n)+1)%3]
		if _, err := other.PutPlan(c.ctx(), 1, []byte("plan 2"), by, "costs"); !errors.Is(err, consensus.ErrNotLeader) && !other.IsLeader() {
			return fmt.Errorf("plan of a follower: %w", orNothing(err))
		}
		if err := other.Barrier(c.ctx()); !errors.Is(err, consensus.ErrNotLeader) && !other.IsLeader() {
			return fmt.Errorf("barrier at a follower: %w", orNothing(err))
		}
		return nil
	})
}

func TestDrainsExpireThroughTheLeader(t *testing.T) {
	c := newCluster(t, false, nil)
	n, now := c.nodes[c.leader()], time.Now()
	for path, until := range map[string]time.Time{"eu": now.Add(time.Minute), "us": now.Add(time.Hour), "ap": {}} {
		if err := n.PutDrain(c.ctx(), consensus.Drain{Path: path, Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	c.leading(func(n *consensus.Node) error {
		if err := n.Expire(c.ctx(), now.Add(time.Minute)); err != nil {
			return err
		}
		s, err := n.Read(c.ctx())
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
	c := newCluster(t, true, nil)
	first := c.leader()
	if _, err := c.nodes[first].PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.stop(first)
	up := c.nodes[(first+1)%3]
	if v, err := up.PutSpec(c.ctx(), 1, []byte("two"), "b"); err != nil || v != 2 {
		t.Fatalf("spec right after the leader stopped: version %d, %v", v, err)
	}
	if next := c.leader(); next == first {
		t.Fatal("a stopped node leads")
	}
	c.start(first)
	c.leader()
	c.converge()
	if s := c.nodes[first].State(); s.SpecVersion != 2 || string(s.SpecHistory[1].Body) != "one" {
		t.Fatalf("the returned node is at version %d", s.SpecVersion)
	}
	if st := c.nodes[first].Status(); len(st.Voters) != 3 || st.Leader == "" || st.Applied == 0 {
		t.Fatalf("status after the return is %+v", st)
	}
}

// TestLeaderCrash kills the leader, writes through a survivor at once, and brings the dead node back.
func TestLeaderCrash(t *testing.T) {
	c := newCluster(t, true, nil)
	first := c.leader()
	if _, err := c.nodes[first].PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.converge()
	c.nodes[first].Kill()
	c.nodes[first] = nil
	begin := time.Now()
	if v, err := c.nodes[(first+1)%3].PutSpec(c.ctx(), 1, []byte("two"), "b"); err != nil || v != 2 {
		t.Fatalf("spec right after the leader died: version %d, %v", v, err)
	}
	t.Logf("writing took %s after the crash, at a heartbeat of %s", time.Since(begin).Round(time.Millisecond), heartbeat())
	c.start(first)
	c.leader()
	c.converge()
}

// TestFollowerCatchesUpBySnapshot stops a follower until the entries it needs are gone from the leader's log.
func TestFollowerCatchesUpBySnapshot(t *testing.T) {
	c := newCluster(t, true, nil)
	lead := c.leader()
	behind := (lead + 1) % 3
	c.stop(behind)
	for i := range 30 {
		if err := c.nodes[lead].PutDrain(c.ctx(), consensus.Drain{Path: fmt.Sprintf("eu/z%02d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nodes[lead].Compact(); err != nil {
		t.Fatal(err)
	}
	if first, err := c.nodes[lead].FirstEntry(); err != nil || first < 20 {
		t.Fatalf("the leader's log still begins at %d, %v", first, err)
	}
	c.start(behind)
	c.leader()
	c.converge()
	if got := len(c.nodes[behind].State().Drains); got != 30 {
		t.Fatalf("the follower has %d drains, want 30", got)
	}
}

func TestRestartWithoutQuorum(t *testing.T) {
	c := newCluster(t, true, nil)
	n := c.nodes[c.leader()]
	for v := range uint64(20) {
		if _, err := n.PutSpec(c.ctx(), v, fmt.Appendf(nil, "spec %d", v+1), "a"); err != nil {
			t.Fatal(err)
		}
	}
	want := c.converge()
	c.stopAll()

	c.start(1)
	alone := c.nodes[1]
	c.eventually("committed state without a quorum", func() bool { return alone.State().Hash() == want })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := alone.PutDrain(ctx, consensus.Drain{Path: "eu"}); !errors.Is(err, consensus.ErrNoLeader) {
		t.Fatalf("write without a quorum: %v, want ErrNoLeader", err)
	}

	c.start(0)
	c.start(2)
	lead := c.leader() // so voters were not forgotten
	if v, err := c.nodes[(lead+1)%3].PutSpec(c.ctx(), 20, []byte("more"), "a"); err != nil || v != 21 {
		t.Fatalf("spec after all returned: version %d, %v", v, err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	c := newCluster(t, false, nil)
	n := c.nodes[c.leader()]
	foreign, err := identity.NewDevCA(t.TempDir(), domain)
	if err != nil {
		t.Fatal(err)
	}
	mine := c.ca
	c.ca = foreign
	stranger := c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: "g1"})
	c.ca = mine
	gateway := c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGateway, Region: "eu", Name: "gw"})
	before := n.Refused()
	for i, certs := range []*identity.Certs{stranger, gateway} {
		for _, alpn := range []string{"spillway-raft/1", "spillway-propose/1"} {
			knock(t, n.Addr().String(), certs, alpn)
		}
		want := before + uint64(2*(i+1))
		c.eventually("refusals counted", func() bool { return n.Refused() >= want })
	}
	if n.Refused() != before+4 {
		t.Fatalf("%d refusals counted, want 4", n.Refused()-before)
	}
	if _, err := n.PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatalf("the cluster no longer writes: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	c := newCluster(t, false, nil)
	_, err := consensus.New(consensus.Config{ID: "g1", Listen: c.peers[1].Addr, Certs: c.certs[0]})
	if err == nil || !strings.Contains(err.Error(), c.peers[1].Addr) || !strings.Contains(err.Error(), "g1") {
		t.Fatalf("error is %v, want one that names the port and who wanted it", err)
	}
}
