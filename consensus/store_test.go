package consensus

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

func openTestStore(t *testing.T, dir string) *store {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// writeEntries writes commands first to last, one at a time, each with the entry before it staged as committed.
func writeEntries(t *testing.T, s *store, first, last uint64) {
	t.Helper()
	for i := first; i <= last; i++ {
		if err := s.StageCommitIndex(i - 1); err != nil {
			t.Fatal(err)
		}
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
}

func commitIndexOf(t *testing.T, s *store) uint64 {
	t.Helper()
	i, err := s.GetCommitIndex()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestCommitIndexIsPersisted(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	if got := commitIndexOf(t, s); got != 0 {
		t.Fatalf("an empty log has commit index %d", got)
	}
	writeEntries(t, s, 1, 10)
	if got := commitIndexOf(t, s); got != 9 {
		t.Fatalf("commit index %d, want 9: what was staged with entry 10", got)
	}
	if err := s.markApplied(10); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTestStore(t, dir)
	if got := commitIndexOf(t, s); got != 10 {
		t.Fatalf("commit index %d after opening again, want 10: what was marked", got)
	}
	if err := s.DeleteRange(8, 10); err != nil {
		t.Fatal(err)
	}
	if got := commitIndexOf(t, s); got > 7 {
		t.Fatalf("commit index %d is beyond the last entry, 7", got)
	}
}

// TestReplayStopsBeforeMembershipChange checks the rule without which a restarted node loses a change of voters.
func TestReplayStopsBeforeMembershipChange(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	writeEntries(t, s, 1, 5)
	if err := s.StoreLog(&raft.Log{Index: 6, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})}); err != nil {
		t.Fatal(err)
	}
	writeEntries(t, s, 7, 9)
	if got := commitIndexOf(t, s); got != 5 {
		t.Fatalf("commit index %d, want 5: the membership change at 6 must not be replayed", got)
	}
	s.baseIndex = 6
	if got := commitIndexOf(t, s); got != 8 {
		t.Fatalf("commit index %d, want 8 once a snapshot holds the change", got)
	}
}

// TestReplayFitsRaftsQueue checks that a long log does not block a starting node.
func TestReplayFitsRaftsQueue(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	logs := make([]*raft.Log, 10000)
	for i := range logs {
		logs[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand}
	}
	logs[0].Type, logs[0].Data = raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{})
	if err := s.StageCommitIndex(10000); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	snaps := raft.NewInmemSnapshotStore()
	_, trans := raft.NewInmemTransport("g1")
	base, err := ensureBaseSnapshot(s, snaps, trans)
	if err != nil || base != 1 {
		t.Fatalf("first snapshot at %d, %v", base, err)
	}
	s.baseIndex = base
	c := Config{ID: "g1", Heartbeat: defaultHeartbeat, Log: discardLog()}.raftConfig(true, hcLogger{logger: discardLog()})
	r, err := raft.NewRaft(c, newFSM(stateChecks{}, discardLog()), s, s, snaps, trans)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.AppliedIndex(); got != 1+maxReplayEntries {
		t.Errorf("replayed up to %d, want %d", got, 1+maxReplayEntries)
	}
	if err := r.Shutdown().Error(); err != nil {
		t.Fatal(err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openTestStore(t, dir)
	if _, err := openStore(dir); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("opening a log in use: %v", err)
	}
}
