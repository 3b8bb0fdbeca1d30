package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
)

func inject(t *testing.T, in Injector, s Spec) {
	t.Helper()
	if s.Lease == 0 {
		s.Lease = time.Minute
	}
	if err := in.Inject(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func clearFault(t *testing.T, in Injector, id string) {
	t.Helper()
	if err := in.Clear(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	expectPhase(t, in, id, PhaseCleared)
}

// TestProcessFaults injects each fault of processes into a fleet of processes, sees its effect, and clears it.
func TestProcessFaults(t *testing.T) {
	p, ps, in := spawnFleet(t)
	node, _ := p.FindNode("frankfurt-gw1")

	t.Run("kill", func(t *testing.T) {
		before := ps.PID(node)
		inject(t, in, Spec{ID: "kill", Kind: ProcessKill, Target: Target{Node: node.ID()}})
		testkit.Eventually(t, "the process is dead", func() bool { return ps.PID(node) == 0 })
		expectPhase(t, in, "kill", PhaseActive)
		clearFault(t, in, "kill")
		if after := ps.PID(node); after == 0 || after == before {
			t.Errorf("process %d was replaced by %d", before, after)
		}
	})
	t.Run("kill a zone until the lease ends", func(t *testing.T) {
		inject(t, in, Spec{ID: "zone", Kind: ZoneDead, Target: Target{Zone: "tokyo/a"}, Lease: 500 * time.Millisecond})
		if s := expectPhase(t, in, "zone", PhaseCleared); len(s.Victims) != 3 {
			t.Errorf("victims %v, want a local instance and two workers", s.Victims)
		}
	})
	t.Run("kill a region with its global node", func(t *testing.T) {
		inject(t, in, Spec{ID: "region", Kind: RegionDead, Target: Target{Region: "virginia"}})
		if s := expectPhase(t, in, "region", PhaseActive); !slices.Contains(s.Victims, "g1") || !slices.Contains(s.Victims, "virginia-gw1") || len(s.Victims) != 5 {
			t.Errorf("victims %v", s.Victims)
		}
		clearFault(t, in, "region")
	})
	t.Run("pause", func(t *testing.T) {
		inject(t, in, Spec{ID: "pause", Kind: ProcessPause, Target: Target{Node: "g3"}})
		expectPhase(t, in, "pause", PhaseActive)
		if state := readProcessState(p.RunningPID("g3")); state != stateStopped {
			t.Errorf("the process is %s", state)
		}
		clearFault(t, in, "pause")
		if state := readProcessState(p.RunningPID("g3")); state != "running" {
			t.Errorf("the process is %s", state)
		}
	})
	t.Run("slow", func(t *testing.T) {
		inject(t, in, Spec{ID: "slow", Kind: ProcessSlow, Target: Target{Node: "g3"}, Params: map[string]string{"factor": "4"}})
		expectPhase(t, in, "slow", PhaseActive)
		clearFault(t, in, "slow")
	})
	t.Run("two faults of one process", func(t *testing.T) {
		inject(t, in, Spec{ID: "first", Kind: ProcessPause, Target: Target{Node: "g3"}})
		err := in.Inject(t.Context(), Spec{ID: "second", Kind: ProcessSlow, Target: Target{Node: "g3"}, Lease: time.Second})
		if err == nil || !strings.Contains(err.Error(), "first") {
			t.Errorf("a second fault of one process: %v", err)
		}
		clearFault(t, in, "first")
	})
}

// TestFaultsOutliveTheirHolder kills the agent and the relay with SIGKILL while they hold leases: their replacements keep
// what runs and clear what has ended.
func TestFaultsOutliveTheirHolder(t *testing.T) {
	p, _, in := spawnFleet(t)
	kill := func(id string) {
		t.Helper()
		pid := p.RunningPID(id)
		if pid == 0 {
			t.Fatalf("%s does not run", id)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, id+" is replaced", func() bool { now := p.RunningPID(id); return now != 0 && now != pid })
	}
	const link = "raft:g1>g2"
	inject(t, in, Spec{ID: "pause", Kind: ProcessPause, Target: Target{Node: "g3"}, Lease: 4 * time.Second})
	inject(t, in, Spec{ID: "slow", Kind: ProcessSlow, Target: Target{Node: "g2"}})
	inject(t, in, Spec{ID: "kill", Kind: WorkerDead, Target: Target{Worker: "tokyo-a-w1"}, Lease: 4 * time.Second})
	inject(t, in, Spec{ID: "cut", Kind: LinkPartition, Target: Target{Link: link}, Lease: 4 * time.Second})
	inject(t, in, Spec{ID: "delay", Kind: LinkDelay, Target: Target{Link: "raft:g2>g1"}, Params: map[string]string{"delay": "50ms"}})
	for range 2 { // the replacement is replaced too
		kill("fault-agent")
		kill("fault-relay")
	}
	for _, id := range []string{"slow", "delay"} {
		expectPhase(t, in, id, PhaseActive)
	}
	for _, id := range []string{"pause", "kill", "cut"} {
		expectPhase(t, in, id, PhaseCleared)
	}
	for _, id := range []string{"slow", "delay"} {
		clearFault(t, in, id)
	}
	if all, err := in.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("faults left: %v, %v", all, err)
	}
	if state := readProcessState(p.RunningPID("g3")); state != "running" {
		t.Errorf("the paused process is %s", state)
	}
	c := dialLink(t, findLink(t, p, link))
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Errorf("through the relay: %v", err)
	}
}

// TestInjectorFindsFaultsOfAnother: a controller that starts after another one was killed lists and clears its faults.
func TestInjectorFindsFaultsOfAnother(t *testing.T) {
	p, _, in := spawnFleet(t)
	inject(t, in, Spec{ID: "a", Kind: ProcessPause, Target: Target{Node: "g3"}})
	inject(t, in, Spec{ID: "b", Kind: LinkPartition, Target: Target{Node: "g3"}})
	if err := in.Inject(t.Context(), Spec{ID: "b", Kind: ProcessPause, Target: Target{Node: "g2"}, Lease: time.Second}); err == nil {
		t.Error("one id is used at two places")
	}
	next, err := Open(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := next.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, s := range all {
		if err := next.Renew(t.Context(), s.Spec.ID); err != nil {
			t.Error(err)
		}
		clearFault(t, next, s.Spec.ID)
		if err := next.Clear(t.Context(), s.Spec.ID); err != nil {
			t.Errorf("clearing twice: %v", err)
		}
	}
	if s, err := next.Verify(t.Context(), "never"); err != nil || s.Phase != PhaseUnknown {
		t.Errorf("an unknown fault: %+v %v", s, err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no fleet") {
		t.Errorf("a directory without a fleet: %v", err)
	}
}

// workerChaos reads a worker's chaos page.
func workerChaos(t *testing.T, n fleet.Node) (c gpu.Chaos) {
	t.Helper()
	a, err := http.Get("http://" + n.Addr["http"].String() + "/chaos")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if err := json.NewDecoder(a.Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWorkerFaultsAreHeldByTheWorker: the worker ends its fault by itself while the agent is dead.
func TestWorkerFaultsAreHeldByTheWorker(t *testing.T) {
	p, _, in := spawnFleet(t)
	n, _ := p.FindNode("frankfurt-a-w1")
	inject(t, in, Spec{ID: "stall", Kind: WorkerStalled, Target: Target{Worker: n.ID()}, Lease: 2 * time.Second})
	expectPhase(t, in, "stall", PhaseActive)
	if err := in.Inject(t.Context(), Spec{ID: "oom", Kind: WorkerOOM, Target: Target{Worker: n.ID()}, Lease: time.Second}); err == nil || !strings.Contains(err.Error(), "one fault at a time") {
		t.Errorf("a second fault of one worker: %v", err)
	}
	if c := workerChaos(t, n); c.Mode != gpu.ModeStall || c.Lease != "stall" {
		t.Errorf("chaos page: %+v", c)
	}
	agent := p.RunningPID("fault-agent")
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(agent, syscall.SIGCONT)
	testkit.Eventually(t, "the worker ends its fault", func() bool { return workerChaos(t, n).Mode == gpu.ModeOK })
	syscall.Kill(agent, syscall.SIGCONT)
	expectPhase(t, in, "stall", PhaseCleared)

	inject(t, in, Spec{ID: "hot", Kind: WorkerThermal, Target: Target{Region: "frankfurt"}, Params: map[string]string{"gpu": n.GPU, "factor": "1.5"}})
	if s := expectPhase(t, in, "hot", PhaseActive); !slices.Contains(s.Victims, n.ID()) || len(s.Victims) != 1 {
		t.Errorf("victims %v, want the only %s", s.Victims, n.GPU)
	}
	clearFault(t, in, "hot")
	if err := in.Inject(t.Context(), Spec{ID: "x", Kind: WorkerThermal, Target: Target{Region: "frankfurt"}, Params: map[string]string{"gpu": "T4"}, Lease: time.Second}); err == nil || !strings.Contains(err.Error(), n.GPU) {
		t.Errorf("a GPU type that the region does not have: %v", err)
	}
}

// TestHoldersEndWithTheirFleet: the relay and the agent end when the fleet's directory is removed.
func TestHoldersEndWithTheirFleet(t *testing.T) {
	p, _, _ := spawnFleet(t)
	pids := []int{p.RunningPID("fault-relay"), p.RunningPID("fault-agent")}
	for _, n := range p.Nodes {
		syscall.Kill(p.RunningPID(n.ID()), syscall.SIGKILL)
	}
	if err := os.Rename(p.Dir, filepath.Join(filepath.Dir(p.Dir), "gone")); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(filepath.Join(filepath.Dir(p.Dir), "gone"), p.Dir)
	for _, pid := range pids {
		testkit.Eventually(t, "the process ends", func() bool { return syscall.Kill(pid, 0) != nil || readProcessState(pid) == "gone" || isZombie(pid) })
	}
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestEveryWorkerFault injects each kind into a worker, finds it in force and clears it, and the worker serves again.
func TestEveryWorkerFault(t *testing.T) {
	p, _, in := spawnFleet(t)
	n, _ := p.FindNode("frankfurt-a-w1")
	params := map[Kind]map[string]string{
		WorkerThermal: {"gpu": n.GPU}, WorkerPoison: {"text": "skull"}, WorkerColdStart: {"restart": "5m"}, WorkerSpot: {"notice": "200ms"},
	}
	kinds := []Kind{WorkerSpot, WorkerDead}
	for k := range workerModes {
		kinds = append(kinds, k)
	}
	for _, k := range kinds {
		inject(t, in, Spec{ID: string(k), Kind: k, Target: Target{Worker: n.ID()}, Params: params[k]})
		expectPhase(t, in, string(k), PhaseActive)
		clearFault(t, in, string(k))
		a, err := http.Get("http://" + n.Addr["http"].String() + "/health")
		if err != nil {
			t.Fatalf("after %s: %v", k, err)
		}
		if a.Body.Close(); a.StatusCode != http.StatusOK {
			t.Errorf("after %s health is %d", k, a.StatusCode)
		}
	}
}

// TestTracedDiskOutlivesTheAgent: strace stays attached when the agent is killed, and is detached when the lease ends.
func TestTracedDiskOutlivesTheAgent(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	p, _, in := spawnFleet(t)
	n, _ := p.FindNode("g1")
	if err := os.MkdirAll(p.StateDir(n), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.StateDir(n), "raft.db"), nil, 0o600); err != nil { // a test's node has no state
		t.Fatal(err)
	}
	if err := in.Inject(t.Context(), Spec{ID: "none", Kind: DiskSlow, Target: Target{Worker: "frankfurt-a-w1"}, Lease: time.Second}); err == nil {
		t.Error("a worker's disk is injured")
	}
	inject(t, in, Spec{ID: "full", Kind: DiskFull, Target: Target{Node: "g1"}, Lease: 4 * time.Second})
	expectPhase(t, in, "full", PhaseActive)
	agent := p.RunningPID("fault-agent")
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the agent is replaced", func() bool { now := p.RunningPID("fault-agent"); return now != 0 && now != agent })
	expectPhase(t, in, "full", PhaseCleared)
	if by := readTracer(p.RunningPID("g1")); by != "0" {
		t.Errorf("the process is traced by %s", by)
	}
}

// TestDeletedStateIsPutBack: the directory is gone while the fault lasts, and what open files received since is in it after.
func TestDeletedStateIsPutBack(t *testing.T) {
	p, _, in := spawnFleet(t)
	n, _ := p.FindNode("g1")
	if err := os.MkdirAll(p.StateDir(n), 0o700); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(p.StateDir(n), "raft.db")
	f, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inject(t, in, Spec{ID: "gone", Kind: DiskDeletedDir, Target: Target{Node: "g1"}})
	if _, err := os.Stat(at); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if _, err := f.WriteString("acknowledged"); err != nil {
		t.Fatal(err)
	}
	expectPhase(t, in, "gone", PhaseActive)
	clearFault(t, in, "gone")
	if text, err := os.ReadFile(at); err != nil || string(text) != "acknowledged" {
		t.Errorf("%q, %v", text, err)
	}
}
