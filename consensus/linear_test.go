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
	linearFor     = 3 * time.Second // of faults in one run
	linearClients = 5
)

// TestLinearizable has clients write and read the spec at all nodes while links are cut and mended, connections break,
// nodes are killed and started again, and leadership is handed on; then it looks for an order of the calls in which a
// single register would have answered the same. LINEAR_RUNS says how many schedules, LINEAR_SEED which is the first.
func TestLinearizable(t *testing.T) {
	first, runs := number(t, "LINEAR_SEED", 1), number(t, "LINEAR_RUNS", 3)
	var sum tally
	t.Run("runs", func(t *testing.T) {
		for seed := first; seed < first+runs; seed++ {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				linearRun(t, seed, &sum)
			})
		}
	})
	t.Logf("%d schedules from seed %d: %d writes took place, %d met a conflict, %d of unknown outcome, %d not made; %d reads, %d without an answer; %d cuts, %d kills, %d handed on",
		runs, first, sum.written.Load(), sum.conflicts.Load(), sum.unknown.Load(), sum.unmade.Load(), sum.reads.Load(), sum.unread.Load(), sum.cuts.Load(), sum.kills.Load(), sum.handed.Load())
	if sum.written.Load() == 0 || sum.reads.Load() == 0 {
		t.Error("nothing was written or nothing was read: the runs show nothing")
	}
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
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

type tally struct {
	written, conflicts, unknown, unmade, reads, unread, cuts, kills, handed atomic.Int64
}

// torn is a cluster whose links can be cut, one for each direction between two nodes.
type torn struct {
	*cluster
	links [3][3]*link
	up    [3]atomic.Pointer[consensus.Node] // what clients see
	sum   *tally

	mu      sync.Mutex
	history []porcupine.Operation
	begun   time.Time
}

func newTorn(t *testing.T, sum *tally) *torn {
	t.Helper()
	c := layCluster(t, true, func(cfg *consensus.Config) { cfg.Heartbeat = 150 * time.Millisecond })
	x := &torn{cluster: c, sum: sum, begun: time.Now()}
	for i := range 3 {
		for j := range 3 {
			x.links[i][j] = newLink(t, c.peers[j].Addr)
		}
	}
	c.seen = func(by int) []consensus.Peer {
		peers := slices.Clone(c.peers)
		for j := range peers {
			if j != by {
				peers[j].Addr = x.links[by][j].ln.Addr().String()
			}
		}
		return peers
	}
	t.Cleanup(c.stopAll) // before the links go
	for i := range 3 {
		x.boot(i)
	}
	return x
}

func (x *torn) boot(i int) {
	x.start(i)
	x.up[i].Store(x.nodes[i])
}

func (x *torn) kill(i int) {
	x.up[i].Store(nil)
	x.nodes[i].Kill()
	x.nodes[i] = nil
}

func (x *torn) each(f func(i, j int, l *link)) {
	for i := range 3 {
		for j := range 3 {
			if i != j {
				f(i, j, x.links[i][j])
			}
		}
	}
}

func linearRun(t *testing.T, seed uint64, sum *tally) {
	x := newTorn(t, sum)
	x.leader()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for id := range linearClients {
		rng := rand.New(rand.NewPCG(seed, uint64(id)+1))
		clients.Go(func() { x.client(ctx, id, rng) })
	}
	x.faults(rand.New(rand.NewPCG(seed, 0)))
	stop()
	clients.Wait()
	x.leader() // which they find again
	for i, n := range x.nodes {
		x.read(x.ctx(), linearClients+i, n, n.Read)
	}
	x.judge(seed)
}

// faults breaks things, the leader's above all, and leaves everything mended.
func (x *torn) faults(rng *rand.Rand) {
	for end := time.Now().Add(linearFor); time.Now().Before(end); time.Sleep(time.Duration(50+rng.IntN(350)) * time.Millisecond) {
		victim := rng.IntN(3)
		if at := slices.IndexFunc(x.nodes, (*consensus.Node).IsLeader); at >= 0 && rng.IntN(3) > 0 {
			victim = at
		}
		switch rng.IntN(9) {
		case 0, 1: // alone
			x.sum.cuts.Add(1)
			x.each(func(i, j int, l *link) {
				if i == victim || j == victim {
					l.cut()
				}
			})
		case 2: // it hears and is not heard, or the other way round
			x.sum.cuts.Add(1)
			deaf := rng.IntN(2) == 0
			x.each(func(i, j int, l *link) {
				if deaf && j == victim || !deaf && i == victim {
					l.cut()
				}
			})
		case 3:
			x.sum.cuts.Add(1)
			x.each(func(i, j int, l *link) {
				if i == victim || j == victim {
					l.sever()
				}
			})
		case 4:
			x.sum.kills.Add(1)
			x.kill(victim)
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			x.boot(victim)
		case 5:
			x.sum.handed.Add(1)
			ctx, cancel := context.WithTimeout(x.t.Context(), 300*time.Millisecond)
			_ = x.nodes[victim].Lead(ctx, "", by) // it may have nobody to hand on to
			cancel()
		default:
			x.each(func(_, _ int, l *link) { l.mend() })
		}
	}
	x.each(func(_, _ int, l *link) { l.mend() })
}

// client calls one node after another, writes on top of what it saw last, and notes what it is told.
func (x *torn) client(ctx context.Context, id int, rng *rand.Rand) {
	seen := uint64(0)
	for op := 0; ctx.Err() == nil; op++ {
		n := x.up[rng.IntN(3)].Load()
		if n == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(100+rng.IntN(2000))*time.Millisecond)
		if rng.IntN(2) == 0 {
			if v, ok := x.read(call, id, n, n.Read); ok {
				seen = v
			}
		} else {
			seen = x.write(call, id, n, seen, fmt.Sprintf("%d.%d", id, op))
		}
		cancel()
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// What a client does to the register, and what it is told.
type (
	put struct {
		basedOn uint64
		value   string
	}
	get struct{}

	told struct { // of a put
		version uint64 // the new one, or at a conflict the current one
		what    string // "written", "conflict" or "unknown"
	}
	register struct { // is also the answer to a get
		version uint64
		value   string
	}
)

func (x *torn) read(ctx context.Context, id int, n *consensus.Node, read func(context.Context) (*consensus.State, error)) (version uint64, ok bool) {
	begun := time.Since(x.begun)
	s, err := read(ctx)
	if err != nil {
		x.sum.unread.Add(1)
		return 0, false
	}
	x.sum.reads.Add(1)
	x.note(id, get{}, begun, register{s.SpecVersion, string(s.Spec)}, time.Since(x.begun))
	return s.SpecVersion, true
}

func (x *torn) write(ctx context.Context, id int, n *consensus.Node, basedOn uint64, value string) (seen uint64) {
	begun := time.Since(x.begun)
	version, err := n.PutSpec(ctx, basedOn, []byte(value), "client")
	ended := time.Since(x.begun)
	var conflict consensus.ErrConflict
	switch {
	case err == nil:
		x.sum.written.Add(1)
		x.note(id, put{basedOn, value}, begun, told{version, "written"}, ended)
		return version
	case errors.As(err, &conflict):
		x.sum.conflicts.Add(1)
		x.note(id, put{basedOn, value}, begun, told{conflict.Current, "conflict"}, ended)
		return conflict.Current
	case !errors.Is(err, consensus.ErrUnknownOutcome) && (errors.Is(err, consensus.ErrNoLeader) || errors.Is(err, consensus.ErrStopped)):
		x.sum.unmade.Add(1) // which the register must never show: no call of the history wrote it
	default: // it may take place at any time from here
		x.sum.unknown.Add(1)
		x.note(id, put{basedOn, value}, begun, told{0, "unknown"}, math.MaxInt64)
	}
	return basedOn
}

func (x *torn) note(id int, input any, begun time.Duration, output any, ended time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history = append(x.history, porcupine.Operation{ClientId: id, Input: input, Call: int64(begun), Output: output, Return: int64(ended)})
}

// model is a register with a version. A write of unknown outcome takes place, if it still can, wherever it is put; put
// after everything else it is as if it never had.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		r := state.(register)
		if _, reads := input.(get); reads {
			return output.(register) == r, r
		}
		in, out := input.(put), output.(told)
		next := register{r.version + 1, in.value}
		switch fits := in.basedOn == r.version; out.what {
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

// judge fails when no order explains the history, and leaves a picture of it.
func (x *torn) judge(seed uint64) {
	x.t.Helper()
	verdict, info := porcupine.CheckOperationsVerbose(model, x.history, time.Minute)
	if verdict == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-linear-%d.html", seed))
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		x.t.Error(err)
	}
	x.t.Errorf("seed %d: %d calls are %s: no order explains them, see %s; run it again with LINEAR_SEED=%d LINEAR_RUNS=1", seed, len(x.history), verdict, path, seed)
}

// TestStaleReadsAreNotLinearizable shows that the test above can fail: what a node has by itself, cut off, is found out,
// and a linearizable read there has no answer.
func TestStaleReadsAreNotLinearizable(t *testing.T) {
	var sum tally
	x := newTorn(t, &sum)
	away := (x.leader() + 1) % 3
	x.write(x.ctx(), 0, x.nodes[away], 0, "one")
	x.converge()
	x.each(func(i, j int, l *link) {
		if i == away || j == away {
			l.cut()
		}
	})
	other := x.nodes[(away+1)%3]
	for version := uint64(1); version == 1; version = other.State().SpecVersion { // the leader may change first
		x.write(x.ctx(), 0, other, 1, "two")
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := x.nodes[away].Read(short); !errors.Is(err, consensus.ErrNoLeader) {
		t.Errorf("a linearizable read at a node that is cut off: %v", err)
	}
	if verdict := porcupine.CheckOperationsTimeout(model, x.history, time.Minute); verdict != porcupine.Ok {
		t.Errorf("before the stale read the history is %s", verdict)
	}
	x.read(x.ctx(), 1, x.nodes[away], func(context.Context) (*consensus.State, error) { return x.nodes[away].State(), nil })
	if verdict := porcupine.CheckOperationsTimeout(model, x.history, time.Minute); verdict != porcupine.Illegal {
		t.Errorf("a stale read is %s, want it found out", verdict)
	}
	x.each(func(_, _ int, l *link) { l.mend() })
}

// TestALeaderThatWasPausedReadsNothingOld stops a leader's Raft loop in a write to its log, as a pause of the process
// does, and cuts its links. The others elect and write; the paused node still takes itself for the leader, and a
// linearizable read there has no answer.
func TestALeaderThatWasPausedReadsNothingOld(t *testing.T) {
	var sum tally
	x := newTorn(t, &sum)
	old := x.leader()
	paused := x.nodes[old]
	x.write(x.ctx(), 0, paused, 0, "one")
	x.converge()

	resume, stuck := x.pauseLeader(paused)
	x.each(func(i, j int, l *link) {
		if i == old || j == old {
			l.cut()
		}
	})
	other := x.nodes[(old+1)%3]
	x.eventually("the others have written", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		x.write(short, 0, other, 1, "two")
		return other.State().SpecVersion == 2
	})
	if leads, has := paused.IsLeader(), paused.State().SpecVersion; !leads || has != 1 {
		t.Fatalf("the paused node leads: %v, has version %d: the test shows nothing", leads, has)
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := paused.Read(short); !errors.Is(err, consensus.ErrNoLeader) {
		t.Errorf("a linearizable read at a paused leader: %v", err)
	}

	resume()
	x.each(func(_, _ int, l *link) { l.mend() })
	<-stuck
	x.leader()
	x.read(x.ctx(), 1, paused, paused.Read)
	if verdict := porcupine.CheckOperationsTimeout(model, x.history, time.Minute); verdict != porcupine.Ok {
		t.Errorf("the history is %s", verdict)
	}
}

// pauseLeader stops the leader's Raft loop until resume is called. The write that stops it ends after that.
func (x *torn) pauseLeader(n *consensus.Node) (resume func(), ended <-chan struct{}) {
	x.t.Helper()
	paused, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(paused) })
	resume = sync.OnceFunc(func() {
		n.BreakDisk(nil)
		close(goOn)
	})
	x.t.Cleanup(resume) // runs before the nodes stop
	n.BlockLog(func() {
		reached()
		<-goOn
	})
	go func() {
		defer close(done)
		_ = n.PutDrain(x.ctx(), consensus.Drain{Path: "eu", Reason: "test", Actor: "a"})
	}()
	<-paused
	return resume, done
}
