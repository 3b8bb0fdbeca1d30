package global

import (
	"fmt"
	"log/slog"
	"net"
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
)

func TestSourceOfAnswers(t *testing.T) {
	now := time.Now()
	saved, first := &consensus.State{SpecVersion: 4}, &consensus.State{}
	raft := func(index, version uint64) *consensus.State {
		return &consensus.State{Index: index, SpecVersion: version}
	}
	type step struct {
		raft *consensus.State
		led  bool
		at   time.Duration
		want origin
	}
	for name, c := range map[string]struct {
		source source
		steps  []step
	}{
		"only a file": {source{first: first}, []step{
			{raft(0, 0), false, 0, firstState},
			{raft(3, 0), true, time.Second, firstState},
			{raft(4, 1), true, 2 * time.Second, agreedState},
			{raft(4, 1), false, time.Hour, agreedState},
		}},
		"a backup beats the file": {source{first: first, saved: saved, savedIndex: 50}, []step{
			{raft(0, 0), false, 0, savedState},
			{raft(0, 0), false, time.Hour, savedState},
		}},
		"a backup that is ahead stays until Raft is there": {source{saved: saved, savedIndex: 50}, []step{
			{raft(30, 3), false, 0, savedState},
			{raft(30, 3), true, time.Hour, savedState},
			{raft(50, 4), true, time.Hour, agreedState},
			{raft(30, 3), false, time.Hour, agreedState}, // and is gone for good
		}},
		"a backup of another history ends with a leader": {source{saved: saved, savedIndex: 50}, []step{
			{raft(9, 1), true, 0, savedState},
			{raft(9, 1), false, time.Second, savedState},
			{raft(9, 1), true, 10 * time.Second, savedState},
			{raft(9, 1), true, 10*time.Second + catchUp, agreedState},
		}},
		"Raft is ahead of the backup": {source{saved: saved, savedIndex: 50}, []step{{raft(51, 4), false, 0, agreedState}}},
	} {
		for i, s := range c.steps {
			if st, from := c.source.choose(s.raft, s.led, now.Add(s.at)); st == nil || from != s.want {
				t.Errorf("%s, step %d: %v from origin %d, want origin %d", name, i, st, from, s.want)
			}
		}
	}
	if st, _ := new(source).choose(raft(0, 0), true, now); st != nil {
		t.Error("a node with nothing at all answers from something")
	}
}

func TestBadSpecFileIsReportedOnce(t *testing.T) {
	var log strings.Builder
	s := newSource(newBackup("", telemetry.Logger(nil)), "x.yaml", []byte("zone: {nmae: x}"), slog.New(slog.NewTextHandler(&log, nil)))
	if s.first != nil || strings.Count(log.String(), "x.yaml:1:") == 0 || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("first state %v, log %s", s.first, &log)
	}
}

// lone makes a planet of which only the nodes that the test starts exist.
func lone(t *testing.T) (*planet, []consensus.Peer) {
	t.Helper()
	p := &planet{t: t, dir: t.TempDir(), gates: map[string]*gate{}}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.Peer
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		peers = append(peers, consensus.Peer{ID: fmt.Sprintf("g%d", i+1), Addr: ln.Addr().String()})
	}
	return p, peers
}

func (p *planet) startNode(peers []consensus.Peer, i int, dir string) *Server {
	p.t.Helper()
	s := p.newNodeIn(peers[i].ID, peers[i].Addr, dir, specText())
	s.SetPeers(peers)
	if err := s.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.stop(s) })
	return s
}

func TestDNSIsUpBeforeRaft(t *testing.T) {
	p, peers := lone(t)
	s := p.startNode(peers, 0, "")
	took := eventually(t, 2*time.Second, "a node alone answers from its spec file", func() bool { return region(s, clients["tokyo"]) == "tokyo" })
	t.Logf("first answer after %s", took)
	v := s.view.Load()
	if v.from != firstState || !v.stale || v.zone.Serial != 0 || v.zone.Negative != 0 || s.node.State().SpecVersion != 0 {
		t.Errorf("origin %d, stale %v, zone %+v", v.from, v.stale, v.zone)
	}
	if said := verbose(t, s); !strings.HasPrefix(said, "ok\nplan from file") || !strings.Contains(said, " old: the spec file, on which nobody has agreed; not confirmed by a leader\n") ||
		!strings.Contains(said, "capacity from none: tokyo was never heard\n") {
		t.Errorf("it says that it runs from\n%s", said)
	}
	if s.directive(capacity.Path{Region: "tokyo"}) != nil {
		t.Error("gateways are told to serve by a spec that nobody has agreed on")
	}
	if v.current(s.node.State()) {
		t.Error("a plan would be made from a spec that nobody has agreed on")
	}
	st, err := s.status(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "; "), "answering from the spec file") {
		t.Errorf("status does not say so: %+v, %v", st, err)
	}
	p.startNode(peers, 1, "")
	eventually(t, 10*time.Second, "the file becomes the first agreed spec", func() bool {
		v := s.view.Load()
		return v.from == agreedState && v.zone.Serial == 1 && v.zone.Negative > 0
	})
	if got := region(s, clients["tokyo"]); got != "tokyo" {
		t.Errorf("after the agreement Tokyo is sent to %s", got)
	}
}

func TestRestartWithoutQuorumGoesOnWhereItWas(t *testing.T) {
	p, peers := lone(t)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range peers {
		p.nodes = append(p.nodes, p.startNode(peers, i, dirs[i]))
	}
	follower := 0
	if p.leader() == p.nodes[0] {
		follower = 1
	}
	s := p.nodes[follower]
	eventually(t, 10*time.Second, "there is a plan", func() bool { v := s.view.Load(); return v != nil && v.plan != nil && v.from == agreedState })
	if _, err := p.admin(s).Drain(t.Context(), admin.DrainRequest{Path: "frankfurt"}); err != nil {
		t.Fatal(err)
	}
	before := s.view.Load()
	eventually(t, 5*time.Second, "the backup holds the drain", func() bool {
		b, err := os.ReadFile(filepath.Join(dirs[follower], "last-state.json"))
		return err == nil && strings.Contains(string(b), `"frankfurt"`)
	})
	for _, n := range p.nodes {
		p.stop(n)
	}
	for _, lose := range []string{"", "raft.db"} {
		if lose != "" {
			loseRaft(t, dirs[follower])
		}
		s := p.startNode(peers, follower, dirs[follower])
		took := eventually(t, 3*time.Second, "a follower that is alone answers as before", func() bool { return region(s, clients["frankfurt"]) == "virginia" })
		v := s.view.Load()
		if v.version != before.version || v.state.PlanEpoch < before.state.PlanEpoch || s.node.Leader() != "" {
			t.Errorf("lost %q: spec %d and plan %d, before %d and %d, leader %q", lose, v.version, v.state.PlanEpoch, before.version, before.state.PlanEpoch, s.node.Leader())
		}
		t.Logf("lost %q: answers as before after %s, from origin %d", lose, took, v.from)
		p.stop(s)
	}
}

// loseRaft takes everything away but the backup.
func loseRaft(t *testing.T, dir string) {
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
