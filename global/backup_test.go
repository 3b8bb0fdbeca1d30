package global

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
)

func TestNodeWithoutRaftAnswersFromTheBackup(t *testing.T) {
	p := &testFleet{t: t, dir: t.TempDir()}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := newStateBackup(dir, telemetry.LoggerOrDiscard(nil))
	drain := consensus.Drain{Path: "frankfurt", Reason: "r"}
	err = b.writeState(&consensus.State{
		Index: 7, SpecVersion: 3, Spec: []byte(testSpecText()), Drains: []consensus.Drain{drain},
		TicketKeys: []consensus.TicketKey{{Secret: []byte("do-not-write-me-0123456789abcdef")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Name: "g1", Dir: dir, Certs: p.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: "g1"}), Atlas: atlas,
		RaftListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0", DNSListen: []string{"127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The other two voters do not exist: there is no leader, and Raft is empty.
	s.SetPeers([]consensus.RaftPeer{{ID: "g1", Addr: s.RaftAddr().String()}, {ID: "g2", Addr: "127.0.0.1:1"}, {ID: "g3", Addr: "127.0.0.1:2"}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.stopNode(s)
	testkit.Eventually(t, "a single node answers", func() bool { return answeredRegion(s, clientAddrs["tokyo"]) == "tokyo" })
	if got := answeredRegion(s, clientAddrs["frankfurt"]); got != "virginia" {
		t.Errorf("the drain in the backup is lost: Frankfurt's client is sent to %s", got)
	}
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}

func TestBackupHoldsNoSecretsAndToleratesMalformedFiles(t *testing.T) {
	dir := t.TempDir()
	b := newStateBackup(dir, telemetry.LoggerOrDiscard(nil))
	if st, _ := b.loadState(); st != nil {
		t.Error("a backup that was never written is loaded")
	}
	st := &consensus.State{Index: 5, SpecVersion: 3, Spec: []byte("x"), Plan: []byte(`{"a":1}`), PlanEpoch: 9, TicketKeys: []consensus.TicketKey{{Secret: []byte("hush")}}}
	if err := b.writeState(st); err != nil {
		t.Fatal(err)
	}
	got, index := b.loadState()
	if got == nil || index != 5 || got.Index != 0 || got.SpecVersion != 3 || got.PlanEpoch != 9 || string(got.Plan) != `{"a":1}` || got.TicketKeys != nil {
		t.Fatalf("loaded %+v", got)
	}
	old := []byte(`{"index":5,"spec_version":3,"spec":"x","plan_epoch":9,"plan":{"spec":3}}`)
	if err := os.WriteFile(b.path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.loadState(); got == nil || string(got.Plan) != `{"spec":3}` {
		t.Errorf("of an older release's backup %+v is loaded", got)
	}
	st.Plan = []byte{2, 0, 255, 10}
	if err := b.writeState(st); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.loadState(); got == nil || string(got.Plan) != string(st.Plan) {
		t.Errorf("a plan in bytes is loaded as %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "last-state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, _ := b.loadState(); st != nil {
		t.Error("rubbish is loaded")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%d files are left behind", len(left))
	}
}

// TestTemporaryBackupFilesAreDeleted: a crash between writing and renaming leaves a file with the zone's keys.
func TestTemporaryBackupFilesAreDeleted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"last-state.json", "last-state.json.123456", "other.json.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newStateBackup(dir, slog.New(slog.DiscardHandler))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}
