package global

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

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
