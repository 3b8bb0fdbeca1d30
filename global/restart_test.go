package global

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestRestartedNodeHasASnapshotBeforeQueries: the first snapshot is built from the backup as the node starts, before
// a query can be read from the socket.
func TestRestartedNodeHasASnapshotBeforeQueries(t *testing.T) {
	p := newTestFleet(t)
	dir := t.TempDir()
	if err := newStateBackup(dir, p.nodes[0].log).writeState(&consensus.State{Index: 9, SpecVersion: 3, Spec: []byte(testSpecText())}); err != nil {
		t.Fatal(err)
	}
	s := p.newNodeIn("g9", "127.0.0.1:0", dir, "")
	if err := s.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.stopParts(t.Context())
	newSnapshotBuilder(s, time.Now())
	if v := s.snapshot.Load(); v == nil || v.Version != 3 || v.source != backupState {
		t.Fatalf("the first view is %+v", v)
	}
}
