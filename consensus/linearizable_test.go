package consensus_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spillway-lb/spillway/consensus"
)

const (
	linearRunTime = 3 * time.Second // duration of the faults in one run
	linearClients = 5
)

// TestLinearizable lets clients write and read the spec at all nodes while links fail and recover, connections break,
// nodes are killed and restarted, and leadership is transferred. It then searches for an order of the calls in which
// a single register would have given the same answers. LINEAR_RUNS is the number of schedules, LINEAR_SEED the first
// seed.
func TestLinearizable(t *testing.T) {
	first, runs := envNumber(t, "LINEAR_SEED", 1), envNumber(t, "LINEAR_RUNS", 3)
	var sum runCounts
	t.Run("runs", func(t *testing.T) {
		for seed := first; seed < first+runs; seed++ {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				runLinearizability(t, seed, &sum)
			})
		}
	})
	t.Logf("%d schedules from seed %d: %d writes took place, %d met a conflict, %d of unknown outcome, %d not made; %d reads, %d without an answer; %d cuts, %d kills, %d handed on",
		runs, first, sum.written.Load(), sum.conflicts.Load(), sum.unknown.Load(), sum.notWritten.Load(), sum.reads.Load(), sum.failedReads.Load(), sum.cuts.Load(), sum.kills.Load(), sum.transfers.Load())
	if sum.written.Load() == 0 || sum.reads.Load() == 0 {
		t.Error("nothing was written or nothing was read: the runs show nothing")
	}
}

func envNumber(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s is %q: write a number", env, text)
	}
	return n
}

type runCounts struct {
	written, conflicts, unknown, notWritten, reads, failedReads, cuts, kills, transfers atomic.Int64
}

// faultyCluster is a cluster whose links can be cut, separately in each direction between two nodes.
type faultyCluster struct {
	*testCluster
	links   [3][3]*faultyLink
	running [3]atomic.Pointer[consensus.Node] // the nodes that clients use
	counts  *runCounts

	mu        sync.Mutex
	history   []porcupine.Operation
	startedAt time.Time
}

func newFaultyCluster(t *testing.T, sum *runCounts) *faultyCluster {
	t.Helper()
	c := newUnstartedCluster(t, true, func(cfg *consensus.Config) { cfg.Heartbeat = 150 * time.Millisecond })
	x := &faultyCluster{testCluster: c, counts: sum, startedAt: time.Now()}
	for i := range 3 {
		for j := range 3 {
			x.links[i][j] = newFaultyLink(t, c.peers[j].Addr)
		}
	}
	c.peersSeenBy = func(by int) []consensus.RaftPeer {
		peers := slices.Clone(c.peers)
		for j := range peers {
			if j != by {
				peers[j].Addr = x.links[by][j].ln.Addr().String()
			}
		}
		return peers
	}
	t.Cleanup(c.stopAll) // before the links close
	for i := range 3 {
		x.bootNode(i)
	}
	return x
}

func (x *faultyCluster) bootNode(i int) {
	x.startNode(i)
	x.running[i].Store(x.nodes[i])
}

func (x *faultyCluster) killNode(i int) {
	x.running[i].Store(nil)
	x.nodes[i].Kill()
	x.nodes[i] = nil
}

func (x *faultyCluster) eachLink(f func(i, j int, l *faultyLink)) {
	for i := range 3 {
		for j := range 3 {
			if i != j {
				f(i, j, x.links[i][j])
			}
		}
	}
}

func runLinearizability(t *testing.T, seed uint64, sum *runCounts) {
	x := newFaultyCluster(t, sum)
	x.awaitLeader()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for id := range linearClients {
		rng := rand.New(rand.NewPCG(seed, uint64(id)+1))
		clients.Go(func() { x.runClient(ctx, id, rng) })
	}
	x.injectFaults(rand.New(rand.NewPCG(seed, 0)))
	stop()
	clients.Wait()
	x.awaitLeader() // which they find again
	for i, n := range x.nodes {
		x.readSpec(x.newContext(), linearClients+i, n, n.ReadLinearizable)
	}
	x.checkHistory(seed)
}

// injectFaults injects faults, most of them at the leader, and clears all of them at its end.
func (x *faultyCluster) injectFaults(rng *rand.Rand) {
	for end := time.Now().Add(linearRunTime); time.Now().Before(end); consensus.SleepFor(x.t.Context(), time.Duration(50+rng.IntN(350))*time.Millisecond) {
		victim := rng.IntN(3)
		if at := slices.IndexFunc(x.nodes, (*consensus.Node).IsLeader); at >= 0 && rng.IntN(3) > 0 {
			victim = at
		}
		switch rng.IntN(9) {
		case 0, 1: // alone
			x.counts.cuts.Add(1)
			x.eachLink(func(i, j int, l *faultyLink) {
				if i == victim || j == victim {
					l.blockTraffic()
				}
			})
		case 2: // it receives and cannot send, or the other way round
			x.counts.cuts.Add(1)
			cannotReceive := rng.IntN(2) == 0
			x.eachLink(func(i, j int, l *faultyLink) {
				if cannotReceive && j == victim || !cannotReceive && i == victim {
					l.blockTraffic()
				}
			})
		case 3:
			x.counts.cuts.Add(1)
			x.eachLink(func(i, j int, l *faultyLink) {
				if i == victim || j == victim {
					l.breakConns()
				}
			})
		case 4:
			x.counts.kills.Add(1)
			x.killNode(victim)
			consensus.SleepFor(x.t.Context(), time.Duration(rng.IntN(500))*time.Millisecond)
			x.bootNode(victim)
		case 5:
			x.counts.transfers.Add(1)
			ctx, cancel := context.WithTimeout(x.t.Context(), 300*time.Millisecond)
			_ = x.nodes[victim].TransferLeadership(ctx, "", testAuthor) // there may be no other voter to take over
			cancel()
		default:
			x.eachLink(func(_, _ int, l *faultyLink) { l.unblockTraffic() })
		}
	}
	x.eachLink(func(_, _ int, l *faultyLink) { l.unblockTraffic() })
}

// runClient calls one node after another, writes based on what it last read, and records the answers.
func (x *faultyCluster) runClient(ctx context.Context, id int, rng *rand.Rand) {
	seen := uint64(0)
	for op := 0; ctx.Err() == nil; op++ {
		n := x.running[rng.IntN(3)].Load()
		if n == nil {
			consensus.SleepFor(ctx, time.Millisecond)
			continue
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(100+rng.IntN(2000))*time.Millisecond)
		if rng.IntN(2) == 0 {
			if v, ok := x.readSpec(call, id, n, n.ReadLinearizable); ok {
				seen = v
			}
		} else {
			seen = x.writeSpec(call, id, n, seen, fmt.Sprintf("%d.%d", id, op))
		}
		cancel()
		consensus.SleepFor(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
	}
}

// Inputs and outputs of a client of the register.
type (
	putOp struct {
		basedOn uint64
		value   string
	}
	getOp struct{}

	putAnswer struct { // of a put
		version uint64 // the new one or, after a conflict, the current one
		outcome string // "written", "conflict" or "unknown"
	}
	versionedRegister struct { // also the output of a get
		version uint64
		value   string
	}
)

func (x *faultyCluster) readSpec(ctx context.Context, id int, n *consensus.Node, read func(context.Context) (*consensus.State, error)) (version uint64, ok bool) {
	begun := time.Since(x.startedAt)
	s, err := read(ctx)
	if err != nil {
		x.counts.failedReads.Add(1)
		return 0, false
	}
	x.counts.reads.Add(1)
	x.recordOp(id, getOp{}, begun, versionedRegister{s.SpecVersion, string(s.Spec)}, time.Since(x.startedAt))
	return s.SpecVersion, true
}

func (x *faultyCluster) writeSpec(ctx context.Context, id int, n *consensus.Node, basedOn uint64, value string) (seen uint64) {
	begun := time.Since(x.startedAt)
	version, err := n.PutSpec(ctx, basedOn, []byte(value), "client")
	ended := time.Since(x.startedAt)
	var conflict consensus.ErrConflict
	switch {
	case err == nil:
		x.counts.written.Add(1)
		x.recordOp(id, putOp{basedOn, value}, begun, putAnswer{version, "written"}, ended)
		return version
	case errors.As(err, &conflict):
		x.counts.conflicts.Add(1)
		x.recordOp(id, putOp{basedOn, value}, begun, putAnswer{conflict.Current, "conflict"}, ended)
		return conflict.Current
	case !errors.Is(err, consensus.ErrUnknownOutcome) && (errors.Is(err, consensus.ErrNoLeader) || errors.Is(err, consensus.ErrStopped)):
		x.counts.notWritten.Add(1) // the register must never return this value: no call of the history wrote it
	default: // it may take place at any time from here
		x.counts.unknown.Add(1)
		x.recordOp(id, putOp{basedOn, value}, begun, putAnswer{0, "unknown"}, math.MaxInt64)
	}
	return basedOn
}

func (x *faultyCluster) recordOp(id int, input any, begun time.Duration, output any, ended time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history = append(x.history, porcupine.Operation{ClientId: id, Input: input, Call: int64(begun), Output: output, Return: int64(ended)})
}

// registerModel is a register with a version. A write of unknown outcome takes effect, if it still can, at any place
// in the order; at the end of the order it has no effect.
var registerModel = porcupine.Model{
	Init: func() any { return versionedRegister{} },
	Step: func(state, input, output any) (bool, any) {
		r := state.(versionedRegister)
		if _, reads := input.(getOp); reads {
			return output.(versionedRegister) == r, r
		}
		in, out := input.(putOp), output.(putAnswer)
		next := versionedRegister{r.version + 1, in.value}
		switch fits := in.basedOn == r.version; out.outcome {
		case "written":
			return fits && out.version == next.version, next
		case "conflict":
			return !fits && out.version == r.version, r
		default:
			if fits {
				return true, next
			}
			return true, r
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// checkHistory fails when no order explains the history, and writes a picture of it.
func (x *faultyCluster) checkHistory(seed uint64) {
	x.t.Helper()
	verdict, info := porcupine.CheckOperationsVerbose(registerModel, x.history, time.Minute)
	if verdict == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-linear-%d.html", seed))
	if err := porcupine.VisualizePath(registerModel, info, path); err != nil {
		x.t.Error(err)
	}
	x.t.Errorf("seed %d: %d calls are %s: no order explains them, see %s; run it again with LINEAR_SEED=%d LINEAR_RUNS=1", seed, len(x.history), verdict, path, seed)
}

// TestStaleReadsAreNotLinearizable shows that the test above can fail: local reads of an isolated node are detected
// as stale, and a linearizable read there gets no answer.
func TestStaleReadsAreNotLinearizable(t *testing.T) {
	t.Parallel()
	var sum runCounts
	x := newFaultyCluster(t, &sum)
	away := (x.awaitLeader() + 1) % 3
	x.writeSpec(x.newContext(), 0, x.nodes[away], 0, "one")
	x.awaitSameState()
	x.eachLink(func(i, j int, l *faultyLink) {
		if i == away || j == away {
			l.blockTraffic()
		}
	})
	other := x.nodes[(away+1)%3]
	for version := uint64(1); version == 1; version = other.State().SpecVersion { // the leader may change first
		x.writeSpec(x.newContext(), 0, other, 1, "two")
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := x.nodes[away].ReadLinearizable(short); !errors.Is(err, consensus.ErrNoLeader) {
		t.Errorf("a linearizable read at a node that is cut off: %v", err)
	}
	if verdict := porcupine.CheckOperationsTimeout(registerModel, x.history, time.Minute); verdict != porcupine.Ok {
		t.Errorf("before the stale read the history is %s", verdict)
	}
	x.readSpec(x.newContext(), 1, x.nodes[away], func(context.Context) (*consensus.State, error) { return x.nodes[away].State(), nil })
	if verdict := porcupine.CheckOperationsTimeout(registerModel, x.history, time.Minute); verdict != porcupine.Illegal {
		t.Errorf("a stale read is %s, want it found out", verdict)
	}
	x.eachLink(func(_, _ int, l *faultyLink) { l.unblockTraffic() })
}

// TestPausedLeaderAnswersNoStaleRead blocks a leader's Raft loop in a write to its log, as a paused process would,
// and cuts its links. The others elect a leader and write. The paused node still considers itself leader, and a
// linearizable read there gets no answer.
func TestPausedLeaderAnswersNoStaleRead(t *testing.T) {
	t.Parallel()
	var sum runCounts
	x := newFaultyCluster(t, &sum)
	x.writeSpec(x.newContext(), 0, x.nodes[x.awaitLeader()], 0, "one")
	x.awaitSameState()

	// An election between awaitLeader and the pause, as on a busy machine, makes the paused node a follower: the next
	// leader is paused then.
	old := x.awaitLeader()
	paused := x.nodes[old]
	resume, stuck := x.pauseLeader(paused)
	for !paused.IsLeader() {
		resume()
		<-stuck
		old = x.awaitLeader()
		paused = x.nodes[old]
		resume, stuck = x.pauseLeader(paused)
	}
	x.eachLink(func(i, j int, l *faultyLink) {
		if i == old || j == old {
			l.blockTraffic()
		}
	})
	other := x.nodes[(old+1)%3]
	x.waitUntil("the others have written", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		x.writeSpec(short, 0, other, 1, "two")
		return other.State().SpecVersion == 2
	})
	if leads, has := paused.IsLeader(), paused.State().SpecVersion; !leads || has != 1 {
		t.Fatalf("the paused node leads: %v, has version %d: the test shows nothing", leads, has)
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := paused.ReadLinearizable(short); !errors.Is(err, consensus.ErrNoLeader) {
		t.Errorf("a linearizable read at a paused leader: %v", err)
	}

	resume()
	x.eachLink(func(_, _ int, l *faultyLink) { l.unblockTraffic() })
	<-stuck
	x.awaitLeader()
	x.readSpec(x.newContext(), 1, paused, paused.ReadLinearizable)
	if verdict := porcupine.CheckOperationsTimeout(registerModel, x.history, time.Minute); verdict != porcupine.Ok {
		t.Errorf("the history is %s", verdict)
	}
}

// pauseLeader blocks the leader's Raft loop until resume is called. The write that blocks it ends after that.
func (x *faultyCluster) pauseLeader(n *consensus.Node) (resume func(), ended <-chan struct{}) {
	x.t.Helper()
	paused, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(paused) })
	resume = sync.OnceFunc(func() {
		n.FailDisk(nil)
		close(goOn)
	})
	x.t.Cleanup(resume) // runs before the nodes stop
	n.BlockLog(func() {
		reached()
		<-goOn
	})
	go func() {
		defer close(done)
		_ = n.PutDrain(x.newContext(), consensus.Drain{Path: "eu", Reason: "test", Actor: "a"})
	}()
	<-paused
	return resume, done
}
