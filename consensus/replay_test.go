package consensus

import (
	"bytes"
	"testing"
	"time"
)

// TestStartReturnsWithTheStateApplied: raft queues what it replays at its start and applies it later. A node that
// served in between would answer from an empty state.
func TestStartReturnsWithTheStateApplied(t *testing.T) {
	s, dir := newSoloNode(t), t.TempDir()
	n := s.startSigningNode(dir)
	if _, err := n.PutSpec(t.Context(), 0, []byte("spec"), "alice"); err != nil {
		t.Fatal(err)
	}
	if err := n.ChangeSigning(t.Context(), SignEnable, "api.example.", bytes.Repeat([]byte{1}, zoneKeySize), Attribution{}); err != nil {
		t.Fatal(err)
	}
	want := n.State()
	s.stopNode(n)

	// Applying is blocked until Start has returned, or for long enough that it would have.
	returned := make(chan struct{})
	c := s.nodeConfig(dir)
	c.HoldTimes = func([]byte) HoldTimes {
		select {
		case <-returned:
		case <-time.After(300 * time.Millisecond):
		}
		return HoldTimes{Zone: "api.example."}
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := n.State()
	close(returned)
	if got.SpecVersion != want.SpecVersion || got.Signing == nil {
		t.Errorf("spec %d, signing %v as Start returns; want %d and what was agreed", got.SpecVersion, got.Signing, want.SpecVersion)
	}
	s.stopNode(n)
}
