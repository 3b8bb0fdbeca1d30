package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func sampleState(t *testing.T) *State {
	t.Helper()
	s := &State{}
	for i, data := range goldenCommands(t) {
		s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 2, data: data}, stateChecks{})
	}
	return s
}

func TestDamagedSnapshotLeavesTheStateAlone(t *testing.T) {
	b, err := encodeState(sampleState(t))
	if err != nil {
		t.Fatal(err)
	}
	f := newFSM(stateChecks{}, discardLog())
	f.applied.publishState(&State{Index: 99})
	flipped := bytes.Clone(b)
	flipped[len(b)/2] ^= 1
	for name, c := range map[string]struct {
		text io.Reader
		want string
	}{
		"flipped bit": {bytes.NewReader(flipped), "damaged"},
		"cut short":   {bytes.NewReader(b[:len(b)-1]), "damaged"},
		"empty":       {strings.NewReader(""), "not a spillway snapshot"},
		"other file":  {strings.NewReader(strings.Repeat("SQLite format 3", 10)), "not a spillway snapshot"},
		"read error":  {io.MultiReader(bytes.NewReader(b), failingReader{}), "disk on fire"},
	} {
		if err := f.Restore(io.NopCloser(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if f.applied.State().Index != 99 {
			t.Fatalf("%s: the state was replaced", name)
		}
	}
	if err := f.Restore(io.NopCloser(bytes.NewReader(b))); err != nil || f.applied.State().Hash() != sampleState(t).Hash() {
		t.Fatalf("a whole snapshot: %v, or another state", err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

// TestRestartFromSnapshotAndLog restarts a node whose state is partly in a snapshot and partly in the log after it.
func TestRestartFromSnapshotAndLog(t *testing.T) {
	ca, err := identity.NewDevCA(t.TempDir(), "test.spillway")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(identity.ID{TrustDomain: "test.spillway", Role: identity.RoleGlobal, Name: "g1"}, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := identity.LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, ctx := t.TempDir(), t.Context()
	open := func() *Node {
		n, err := New(Config{ID: "g1", Dir: dir, Listen: "127.0.0.1:0", Certs: certs, Heartbeat: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
		return n
	}
	put := func(n *Node, from, to uint64) {
		for v := from; v < to; v++ {
			if _, err := n.PutSpec(ctx, v, fmt.Appendf(nil, "spec %d", v+1), "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := open()
	put(n, 0, 5)
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	put(n, 5, 8)
	want := n.State().Hash()
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	n = open()
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	n.fsm.applied.waitForWrite(ctx, n.ctx.Done(), 1)
	if list, err := raft.NewFileSnapshotStoreWithLogger(dir, retainedSnapshots, hcLogger{logger: discardLog()}); err != nil {
		t.Fatal(err)
	} else if metas, err := list.List(); err != nil || metas[0].Index < 2 {
		t.Fatalf("no snapshot was taken: %v", err)
	}
	testkit.Eventually(t, "the state of spec 8 after a restart", func() bool { return n.State().Hash() == want })
	put(n, 8, 9)
}

// TestRestoredStateIsNewerThanBothHistories: a restored state has a greater generation, index, term and versions than
// the archive and than the cluster into which it is restored.
func TestRestoredStateIsNewerThanBothHistories(t *testing.T) {
	at := time.Unix(1_000_000_000, 0)
	low := &State{Generation: 5, Index: 10, Term: 2, SpecVersion: 3, Spec: []byte("a")}
	high := &State{Generation: 7, Index: 9000, Term: 40, SpecVersion: 30, Spec: []byte("b")}
	ahead := &State{Generation: uint64(at.Unix()) + 50, Index: 10, Term: 2, SpecVersion: 3, Spec: []byte("c")}
	for _, c := range []struct{ archive, now *State }{{low, high}, {high, low}, {low, &State{}}, {ahead, low}, {low, ahead}} {
		got := c.archive.mergeForRestore(c.now, "op", at)
		for _, was := range []*State{c.archive, c.now} {
			if got.Generation <= was.Generation || got.Index <= was.Index || got.Term < was.Term || got.SpecVersion <= was.SpecVersion {
				t.Errorf("restored as %d/%d/%d/%d, after %d/%d/%d/%d", got.Generation, got.Index, got.Term, got.SpecVersion,
					was.Generation, was.Index, was.Term, was.SpecVersion)
			}
		}
		if got.Generation < uint64(at.Unix()) || string(got.Spec) != string(c.archive.Spec) {
			t.Errorf("restored as %+v", got)
		}
	}
}

// slowRestoreHandler delays each restore for longer than raft waits for space in its queues: the goroutine that
// installs a restored state also logs it.
type slowRestoreHandler struct{ slog.Handler }

func (h slowRestoreHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "a new generation of the cluster began") {
		<-time.After(enqueueTimeout + 100*time.Millisecond)
	}
	return nil
}

// TestSlowRestoreIsNotReportedAsFailed: raft chooses at random between an expired timeout and the next step. With a
// timeout, at least one of eight restores fails, but for one run in 256.
func TestSlowRestoreIsNotReportedAsFailed(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := newSoloNode(t)
			c := s.nodeConfig(t.TempDir())
			c.Log = slog.New(slowRestoreHandler{slog.NewTextHandler(t.Output(), nil)})
			n, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.stopNode(n)
			if _, err := n.PutSpec(t.Context(), 0, []byte("spec"), "a"); err != nil {
				t.Fatal(err)
			}
			archive, err := n.EncodeArchive()
			if err != nil {
				t.Fatal(err)
			}
			if version, err := n.RestoreArchive(t.Context(), archive, Attribution{Actor: "op"}); err != nil || version != 2 {
				t.Errorf("a restore of %v: version %d, %v", enqueueTimeout, version, err)
			}
		})
	}
}
