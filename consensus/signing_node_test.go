package consensus

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// startSigningNode starts a single node whose specs have no TTLs to wait for.
func (s soloNode) startSigningNode(dir string) *Node {
	s.t.Helper()
	c := s.nodeConfig(dir)
	c.HoldTimes = func([]byte) HoldTimes { return HoldTimes{Zone: "api.example."} }
	n, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestSigningOutlivesRestarts takes signing steps on a real node and restores them from its log, from a snapshot and
// from an archive.
func TestSigningOutlivesRestarts(t *testing.T) {
	t.Parallel()
	s, dir, ctx := newSoloNode(t), t.TempDir(), t.Context()
	n := s.startSigningNode(dir)
	sign := func(action string, fill byte) {
		t.Helper()
		var key []byte
		if fill > 0 {
			key = bytes.Repeat([]byte{fill}, zoneKeySize)
		}
		if err := n.ChangeSigning(ctx, action, "api.example.", key, Attribution{Actor: "alice", Reason: "test"}); err != nil {
			t.Fatalf("%s: %v", action, err)
		}
	}
	step := func(want SigningPhase) {
		t.Helper()
		if err := n.AdvanceSigning(ctx, time.Now().Add(time.Second)); err != nil || n.State().Signing == nil || n.State().Signing.Phase != want {
			t.Fatalf("%v, %+v; want %s", err, n.State().Signing, want)
		}
	}
	again := func() {
		t.Helper()
		want := n.State().Signing
		s.stopNode(n)
		n = s.startSigningNode(dir)
		testkit.Eventually(t, "the node leads and has the state of the signing again", func() bool { return n.IsLeader() && n.State().Signing != nil })
		if got := n.State().Signing; got.Phase != want.Phase || len(got.Keys) != len(want.Keys) || !bytes.Equal(got.Keys[0].Secret, want.Keys[0].Secret) || !got.StepDueAt.Equal(want.StepDueAt) {
			t.Fatalf("after a restart: %+v, want %+v", got, want)
		}
	}
	if _, err := n.PutSpec(ctx, 0, []byte("spec"), "alice"); err != nil {
		t.Fatal(err)
	}
	if err := n.ChangeSigning(ctx, SignEnable, "other.", bytes.Repeat([]byte{1}, zoneKeySize), Attribution{}); !errors.As(err, new(ErrRefused)) {
		t.Fatalf("another zone is signed: %v", err)
	}
	sign(SignEnable, 1)
	again()
	step(PhasePublish)
	sign(SignConfirmDS, 0)
	sign(SignRoll, 2)
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	again()
	step(PhaseReplace)
	archive, err := n.EncodeArchive()
	if err != nil {
		t.Fatal(err)
	}
	sign(SignConfirmDS, 0)
	step(PhaseSigned)
	if _, err := n.RestoreArchive(ctx, archive, Attribution{Actor: "alice"}); err != nil {
		t.Fatal(err)
	}
	if g := n.State().Signing; g.Phase != PhaseSigned || len(g.Keys) != 1 || g.Keys[0].Secret[0] != 2 {
		t.Errorf("an archive brings back keys that were rolled: %+v", g)
	}
	again()
	sign(SignDisable, 0)
	sign(SignConfirmDS, 0)
	if err := n.AdvanceSigning(ctx, time.Now().Add(time.Second)); err != nil || n.State().Signing != nil {
		t.Errorf("in the end: %+v, %v", n.State().Signing, err)
	}
	s.stopNode(n)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, _ := os.Stat(path)
		if path == filepath.Join(dir, snapshotDir) {
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
			return fs.SkipDir // its content is private to the owner
		}
		if err == nil && !d.IsDir() && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
