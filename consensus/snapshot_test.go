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
