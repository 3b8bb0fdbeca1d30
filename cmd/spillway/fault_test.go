package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// startRelayFleet starts a fleet of processes with a relay on each link and the round trips of the regions' distances.
func startRelayFleet(t *testing.T) (*processFleet, fault.Injector) {
	t.Helper()
	dir, err := os.MkdirTemp("", "spw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("SPILLWAY_SERVER", "")
	l := fleet.DefaultLayout()
	if l.OneAddress {
		t.Skip("this test needs all of 127.0.0.0/8")
	}
	l.Zones, l.Workers, l.Relays = 1, 2, true
	for l.Net = 10 + rand.IntN(80); !isLayoutFree(l); l.Net = 10 + rand.IntN(80) {
	}
	files, err := fleet.WriteFiles(filepath.Join(dir, "f"), l)
	if err != nil {
		t.Fatal(err)
	}
	p := &processFleet{inProcessFleet: &inProcessFleet{Files: files}}
	binary, err := exec.LookPath("spillway")
	if err != nil {
		t.Fatal(err)
	}
	if p.ps, err = fleet.SpawnAll(files, binary); err != nil {
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
	in, err := fault.Open(files.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return p, in
}

// waitForPhase verifies a fault until it has a phase.
func waitForPhase(t *testing.T, in fault.Injector, id string, want fault.Phase) {
	t.Helper()
	waitForSuccess(t, testTimeout, id+" is "+string(want), func() error {
		s, err := in.Verify(t.Context(), id)
		if err == nil && s.Phase != want {
			err = fmt.Errorf("it is %s: %s", s.Phase, s.Probe)
		}
		return err
	})
}

// TestFaultsOfARunningFleet injects faults into the shipped tiers: each shows in what they report, and is cleared.
func TestFaultsOfARunningFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	p, in := startRelayFleet(t)
	inject := func(s fault.Spec) {
		t.Helper()
		s.Lease = time.Minute
		if err := in.Inject(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		waitForPhase(t, in, s.ID, fault.PhaseActive)
	}
	clear := func(id string) {
		t.Helper()
		if err := in.Clear(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		waitForPhase(t, in, id, fault.PhaseCleared)
	}

	inject(fault.Spec{ID: "cut", Kind: fault.Partition, Target: fault.Target{Region: "tokyo"}})
	others := slices.DeleteFunc(p.NodesByRole("global"), func(n fleet.Node) bool { return p.Layout.SiteOf(n) == "tokyo" })
	waitForSuccess(t, testTimeout, "the other global nodes send Tokyo's clients elsewhere", func() error {
		for _, n := range others {
			if s, err := p.statusOf(t.Context(), n); err != nil || regionState(s, "tokyo") != admin.StateUnreachable {
				return fmt.Errorf("%s reports tokyo as %s: %w", n.ID(), regionState(s, "tokyo"), err)
			}
		}
		return nil
	})
	clear("cut")
	waitForSuccess(t, testTimeout, "every client is sent to the nearest region again", func() error { return p.checkSteering(nearestRegions()) })

	inject(fault.Spec{ID: "clock", Kind: fault.ClockJump, Target: fault.Target{Node: "g2"}, Params: map[string]string{"jump": "1h"}})
	g2, _ := p.FindNode("g2")
	waitForSuccess(t, testTimeout, "g2 knows that its clock is an hour ahead", func() error {
		s, err := p.statusOf(t.Context(), g2)
		if err != nil || s.Raft.Clock == nil || s.Raft.Clock.AheadMS == nil || *s.Raft.Clock.AheadMS < 3_500_000 {
			return fmt.Errorf("clock %+v: %w", s.Raft, err)
		}
		return nil
	})
	clear("clock")

	inject(fault.Spec{ID: "rotate", Kind: fault.CertRotate, Target: fault.Target{Region: "frankfurt"}})
	inject(fault.Spec{ID: "expire", Kind: fault.CertExpired, Target: fault.Target{Node: "tokyo-a-local1"}, Params: map[string]string{"ttl": "1s"}})
	for _, id := range []string{"rotate", "expire"} {
		clear(id)
	}
	_, err := exec.LookPath("strace")
	hasStrace := err == nil
	for _, s := range []fault.Spec{
		{ID: "full", Kind: fault.DiskFull, Target: fault.Target{Node: "g3"}},
		{ID: "eio", Kind: fault.DiskEIO, Target: fault.Target{Node: "tokyo-gw1"}},
		{ID: "slow", Kind: fault.DiskSlow, Target: fault.Target{Node: "leader"}},
		{ID: "sync", Kind: fault.ProcessKillAtSync, Target: fault.Target{Node: "leader"}},
		{ID: "snapshot", Kind: fault.DiskDamagedSnapshot, Target: fault.Target{Node: "g3"}},
		{ID: "torn", Kind: fault.DiskTornPlan, Target: fault.Target{Region: "frankfurt"}},
		{ID: "deleted", Kind: fault.DiskDeletedDir, Target: fault.Target{Node: "g1"}, Params: map[string]string{"restart": "yes"}},
	} {
		if k, _ := fault.FindKind(s.Kind); k.Needs == "strace" && !hasStrace {
			continue
		}
		inject(s)
		if s.Kind == fault.DiskFull {
			p.expectFullDisk(t, "g3")
		}
		clear(s.ID)
		waitForSuccess(t, testTimeout, "every node is ready after "+string(s.Kind), p.checkReady)
	}
	inject(fault.Spec{ID: "leader", Kind: fault.LeaderDead})
	clear("leader")
	for _, n := range p.Nodes {
		p.killedIDs = append(p.killedIDs, n.ID())
	}
	waitForSuccess(t, testTimeout, "every node is ready again", p.checkReady)
	waitForSuccess(t, testTimeout, "every client is sent to the nearest region in the end", func() error { return p.checkSteering(nearestRegions()) })
	for id, s := range map[string]struct {
		spec fault.Spec
		want string // in the evidence
	}{
		"drain":    {fault.Spec{Kind: fault.Drain, Target: fault.Target{Zone: "tokyo/a"}, Params: map[string]string{"force": "yes"}}, "tokyo/a is drained"},
		"nonsense": {fault.Spec{Kind: fault.OperatorNonsense}, "refused: "},
		"two":      {fault.Spec{Kind: fault.OperatorTwoAtOnce}, "is refused: "},
		"all":      {fault.Spec{Kind: fault.OperatorDrainAll}, " is refused: "},
		"archive":  {fault.Spec{Kind: fault.OperatorOldArchive}, "is restored as version"},
		"voter":    {fault.Spec{Kind: fault.OperatorRemoveVoter, Target: fault.Target{Node: "g2"}}, "g2 is removed"},
		"garbage":  {fault.Spec{Kind: fault.InputDNSGarbage, Target: fault.Target{Node: "g1"}}, "sent in"},
		"flood":    {fault.Spec{Kind: fault.InputDNSFlood, Target: fault.Target{Node: "g1"}}, "sent in"},
		"slow":     {fault.Spec{Kind: fault.InputSlowClients, Target: fault.Target{Region: "virginia"}, Params: map[string]string{"count": "10"}}, "connections open"},
		"huge":     {fault.Spec{Kind: fault.InputHugeBodies, Target: fault.Target{Region: "virginia"}, Params: map[string]string{"count": "2"}}, "sent in"},
	} {
		s.spec.ID = "op-" + id
		inject(s.spec)
		if state, err := in.Verify(t.Context(), s.spec.ID); err != nil || !strings.Contains(state.Probe, s.want) {
			t.Errorf("%s: %s, want %q: %v", s.spec.Kind, state.Probe, s.want, err)
		}
		clear(s.spec.ID)
	}
	waitForSuccess(t, testTimeout, "every client is sent to the nearest region after the mistakes", func() error { return p.checkSteering(nearestRegions()) })

	if late, err := fault.ReadLateness(t.Context(), p.Dir); err != nil || late.Count == 0 {
		t.Errorf("lateness of the relay: %+v, %v", late, err)
	} else {
		t.Logf("the relay delivered %d times, p99 %s late", late.Count, late.P99)
	}
}

// expectFullDisk writes to the log of the cluster until a node reports that its disk is full.
func (p *processFleet) expectFullDisk(t *testing.T, id string) {
	g1, _ := p.FindNode("g1")
	c, err := admin.Dial("unix://"+g1.AdminSocket(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waitForSuccess(t, testTimeout, id+" reports that its disk is full", func() error {
		if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia/a", ForMS: 60_000, Force: true, Reason: "test"}); err != nil {
			return err
		}
		if _, err := c.EndDrain(t.Context(), "virginia/a", "test"); err != nil {
			return err
		}
		text, err := os.ReadFile(p.Files.LogPath(id))
		if err == nil && !strings.Contains(string(text), "no space left on device") {
			err = fmt.Errorf("log: %.200s", text)
		}
		return err
	})
}

// statusOf reads the status of a node.
func (p *processFleet) statusOf(ctx context.Context, n fleet.Node) (*admin.Status, error) {
	c, err := admin.Dial("unix://"+n.AdminSocket(), nil)
	if err != nil {
		return &admin.Status{}, err
	}
	defer c.Close()
	s, err := c.GetStatus(ctx)
	if err != nil {
		return &admin.Status{}, err
	}
	return s, nil
}

func regionState(s *admin.Status, name string) string {
	for _, r := range s.Regions {
		if r.Name == name {
			return r.State
		}
	}
	return "absent"
}
