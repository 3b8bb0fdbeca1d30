package global

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
)

func TestStateChooser(t *testing.T) {
	now := time.Now()
	saved, first := &consensus.State{SpecVersion: 4}, &consensus.State{}
	raft := func(index, version uint64) *consensus.State {
		return &consensus.State{Index: index, SpecVersion: version}
	}
	type step struct {
		raft *consensus.State
		led  bool
		at   time.Duration
		want stateSource
	}
	for name, c := range map[string]struct {
		source stateChooser
		steps  []step
	}{
		"only a file": {stateChooser{specFile: first}, []step{
			{raft(0, 0), false, 0, specFileState},
			{raft(3, 0), true, time.Second, specFileState},
			{raft(4, 1), true, 2 * time.Second, agreedState},
			{raft(4, 1), false, time.Hour, agreedState},
		}},
		"a backup beats the file": {stateChooser{specFile: first, backup: saved, backupIndex: 50}, []step{
			{raft(0, 0), false, 0, backupState},
			{raft(0, 0), false, time.Hour, backupState},
		}},
		"a backup that is ahead stays until Raft is there": {stateChooser{backup: saved, backupIndex: 50}, []step{
			{raft(30, 3), false, 0, backupState},
			{raft(30, 3), true, time.Hour, backupState},
			{raft(50, 4), true, time.Hour, agreedState},
			{raft(30, 3), false, time.Hour, agreedState}, // and is gone for good
		}},
		"a backup of another history ends with a leader": {stateChooser{backup: saved, backupIndex: 50}, []step{
			{raft(9, 1), true, 0, backupState},
			{raft(9, 1), false, time.Second, backupState},
			{raft(9, 1), true, 10 * time.Second, backupState},
			{raft(9, 1), true, 10*time.Second + raftCatchUpTimeout, agreedState},
		}},
		"Raft is ahead of the backup": {stateChooser{backup: saved, backupIndex: 50}, []step{{raft(51, 4), false, 0, agreedState}}},
	} {
		for i, s := range c.steps {
			if st, from := c.source.chooseState(s.raft, s.led, now.Add(s.at)); st == nil || from != s.want {
				t.Errorf("%s, step %d: %v from origin %d, want origin %d", name, i, st, from, s.want)
			}
		}
	}
	if st, _ := new(stateChooser).chooseState(raft(0, 0), true, now); st != nil {
		t.Error("a node with nothing at all answers from something")
	}
}

func TestBadSpecFileIsReportedOnce(t *testing.T) {
	var log strings.Builder
	s := newStateChooser(newStateBackup("", telemetry.LoggerOrDiscard(nil)), "x.yaml", []byte("zone: {nmae: x}"), slog.New(slog.NewTextHandler(&log, nil)))
	if s.specFile != nil || strings.Count(log.String(), "x.yaml:1:") == 0 || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("first state %v, log %s", s.specFile, &log)
	}
}

// newUnstartedFleet makes a fleet in which only the nodes that the test starts exist.
func newUnstartedFleet(t *testing.T) (*testFleet, []consensus.RaftPeer) {
	t.Helper()
	p := &testFleet{t: t, dir: t.TempDir(), gateways: map[string]*fakeGateway{}}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.RaftPeer
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		peers = append(peers, consensus.RaftPeer{ID: fmt.Sprintf("g%d", i+1), Addr: ln.Addr().String()})
	}
	return p, peers
}

func (p *testFleet) startNode(peers []consensus.RaftPeer, i int, dir string) *Server {
	p.t.Helper()
	s := p.newNodeIn(peers[i].ID, peers[i].Addr, dir, testSpecText())
	s.SetPeers(peers)
	if err := s.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.stopNode(s) })
	return s
}

func TestDNSIsUpBeforeRaft(t *testing.T) {
	p, peers := newUnstartedFleet(t)
	s := p.startNode(peers, 0, "")
	took := testkit.Eventually(t, "a single node answers from its spec file", func() bool { return answeredRegion(s, clientAddrs["tokyo"]) == "tokyo" })
	timed.AssertWithin(t, "the first answer", took, 2*time.Second)
	v := s.snapshot.Load()
	if v.source != specFileState || !v.stale || v.policy.zone.Serial != 0 || v.policy.zone.NegativeTTL != 0 || s.node.State().SpecVersion != 0 {
		t.Errorf("origin %d, stale %v, zone %+v", v.source, v.stale, v.policy.zone)
	}
	if said := readyzVerbose(t, s); !strings.HasPrefix(said, "ok\nplan from file") || !strings.Contains(said, " old: the spec file, not agreed by the cluster; not confirmed by a leader\n") ||
		!strings.Contains(said, "capacity from none: tokyo has never reported\n") {
		t.Errorf("it reports that it runs from\n%s", said)
	}
	if s.directives.buildDirective(capacity.Path{Region: "tokyo"}) != nil {
		t.Error("gateways receive a spec that is not agreed")
	}
	if v.isCurrent(s.node.State()) {
		t.Error("a plan would be made from a spec that is not agreed")
	}
	st, err := s.status.collectStatus(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "; "), "answers from its spec file") {
		t.Errorf("status does not show it: %+v, %v", st, err)
	}
	p.startNode(peers, 1, "")
	testkit.Eventually(t, "the file becomes the first agreed spec", func() bool {
		v := s.snapshot.Load()
		return v.source == agreedState && v.policy.zone.Serial == 1 && v.policy.zone.NegativeTTL > 0
	})
	if got := answeredRegion(s, clientAddrs["tokyo"]); got != "tokyo" {
		t.Errorf("after the agreement Tokyo is sent to %s", got)
	}
}

func TestRestartWithoutQuorumKeepsTheLastState(t *testing.T) {
	p, peers := newUnstartedFleet(t)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range peers {
		p.nodes = append(p.nodes, p.startNode(peers, i, dirs[i]))
	}
	follower := 0
	if p.awaitLeader() == p.nodes[0] {
		follower = 1
	}
	s := p.nodes[follower]
	testkit.Eventually(t, "there is a plan", func() bool { v := s.snapshot.Load(); return v != nil && v.Plan != nil && v.source == agreedState })
	if _, err := p.adminClient(s).StartDrain(t.Context(), admin.DrainRequest{Path: "frankfurt"}); err != nil {
		t.Fatal(err)
	}
	before := s.snapshot.Load()
	testkit.Eventually(t, "the backup holds the drain", func() bool {
		b, err := os.ReadFile(filepath.Join(dirs[follower], "last-state.json"))
		return err == nil && strings.Contains(string(b), `"frankfurt"`)
	})
	for _, n := range p.nodes {
		p.stopNode(n)
	}
	for _, lose := range []string{"", "raft.db"} {
		if lose != "" {
			removeRaftState(t, dirs[follower])
		}
		s := p.startNode(peers, follower, dirs[follower])
		took := testkit.Eventually(t, "a single follower answers as before", func() bool { return answeredRegion(s, clientAddrs["frankfurt"]) == "virginia" })
		v := s.snapshot.Load()
		if v.Version != before.Version || v.state.PlanEpoch < before.state.PlanEpoch || s.node.Leader() != "" {
			t.Errorf("lost %q: spec %d and plan %d, before %d and %d, leader %q", lose, v.Version, v.state.PlanEpoch, before.Version, before.state.PlanEpoch, s.node.Leader())
		}
		timed.AssertWithin(t, fmt.Sprintf("lost %q: answers as before", lose), took, 3*time.Second)
		p.stopNode(s)
	}
}

// removeRaftState deletes everything except the backup.
func removeRaftState(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "last-state.json" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestartedNodeHasASnapshotBeforeQueries: the first snapshot is built from the backup as the node starts, before
// a query can be read from the socket.
func TestRestartedNodeHasASnapshotBeforeQueries(t *testing.T) {
	p := newTestFleet(t)
	dir := t.TempDir()
	if err := newStateBackup(dir, p.nodes[0].log).writeState(&consensus.State{Index: 9, SpecVersion: 3, Spec: []byte(testSpecText())}); err != nil {
		t.Fatal(err)
	}
	s := p.newNodeIn("g9", "127.0.0.1:0", dir, "")
	if err := s.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.stopParts(t.Context())
	newSnapshotBuilder(s, time.Now())
	if v := s.snapshot.Load(); v == nil || v.Version != 3 || v.source != backupState {
		t.Fatalf("the first view is %+v", v)
	}
}

// TestRestartWithoutBackupAnswersAtOnce: the state in the Raft log is in force as DNS starts, without a leader, a
// backup or a spec file.
func TestRestartWithoutBackupAnswersAtOnce(t *testing.T) {
	t.Parallel()
	p, peers := newUnstartedFleet(t)
	dirs := []string{t.TempDir(), ""}
	for i := range dirs {
		p.nodes = append(p.nodes, p.startNode(peers[:2], i, dirs[i]))
	}
	s := p.nodes[0]
	testkit.Eventually(t, "a spec is agreed on", func() bool { v := s.snapshot.Load(); return v != nil && v.source == agreedState && v.Plan != nil })
	for _, n := range p.nodes {
		p.stopNode(n)
	}
	if err := os.RemoveAll(filepath.Join(dirs[0], "last-state.json")); err != nil {
		t.Fatal(err)
	}
	s = p.newNodeIn(peers[0].ID, peers[0].Addr, dirs[0], "")
	s.SetPeers(peers[:2])
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.stopNode(s)
	if v := s.snapshot.Load(); v == nil || v.Version == 0 || v.source != agreedState {
		t.Errorf("DNS starts with the view %+v", v)
	}
	if got := answeredRegion(s, clientAddrs["tokyo"]); got != "tokyo" {
		t.Errorf("the first answer for Tokyo is %q", got)
	}
}

// TestFirstReportDoesNotShrinkAnAnswer: shortly after a start, the gateway that reports first is not the only one in
// the answer; later, gateways without reports are left out.
func TestFirstReportDoesNotShrinkAnAnswer(t *testing.T) {
	f := copyPolicy(newStaticSnapshot(t))
	sp := *f.Spec
	sp.Regions = append(sp.Regions[:0:0], sp.Regions...)
	r := f.RegionIndex("tokyo")
	second := sp.Regions[r].Gateways[0]
	second.Name, second.Addresses = "gt2", []netip.Addr{testGatewayAddrs["virginia"]}
	sp.Regions[r].Gateways = append(sp.Regions[r].Gateways[:1:1], second)
	f.Spec = &sp
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	s := summaryWithCapacity(10_000, 8)
	s.Path, s.Boot, s.Seq = capacity.Path{Region: "tokyo", Instance: "gt"}, 1, 1
	book.PutSummary(s, now)
	for settled, want := range map[bool]int{false: 2, true: 1} {
		v := testSnapshot(f, &consensus.State{}, book.BuildView(now), soloVotes(), now, settled)
		if got := len(v.Regions[r].Addrs); got != want {
			t.Errorf("settled %v: %d addresses, want %d", settled, got, want)
		}
	}
}
