package global

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestNodeWithoutRaftAnswersFromTheBackup(t *testing.T) {
	p := &planet{t: t, dir: t.TempDir()}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := newBackup(dir, telemetry.Logger(nil))
	drain := consensus.Drain{Path: "frankfurt", Reason: "r"}
	err = b.write(&consensus.State{
		Index: 7, SpecVersion: 3, Spec: []byte(specText()), Drains: []consensus.Drain{drain},
		TicketKeys: []consensus.Key{{Secret: []byte("do-not-write-me-0123456789abcdef")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Name: "g1", Dir: dir, Certs: p.certs(identity.ID{Role: identity.RoleGlobal, Name: "g1"}), Atlas: atlas,
		RaftListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0", DNSListen: []string{"127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The other two voters are nowhere: there is no leader, and nothing in Raft.
	s.SetPeers([]consensus.Peer{{ID: "g1", Addr: s.RaftAddr().String()}, {ID: "g2", Addr: "127.0.0.1:1"}, {ID: "g3", Addr: "127.0.0.1:2"}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.stop(s)
	eventually(t, 2*time.Second, "a node alone answers", func() bool { return region(s, clients["tokyo"]) == "tokyo" })
	if got := region(s, clients["frankfurt"]); got != "virginia" {
		t.Errorf("the drain in the backup is forgotten: Frankfurt is sent to %s", got)
	}
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}

func TestBackupKeepsNoSecretAndSurvivesRubbish(t *testing.T) {
	dir := t.TempDir()
	b := newBackup(dir, telemetry.Logger(nil))
	if st, _ := b.load(); st != nil {
		t.Error("a backup that was never written is loaded")
	}
	st := &consensus.State{Index: 5, SpecVersion: 3, Spec: []byte("x"), Plan: []byte(`{"a":1}`), PlanEpoch: 9, TicketKeys: []consensus.Key{{Secret: []byte("hush")}}}
	if err := b.write(st); err != nil {
		t.Fatal(err)
	}
	got, index := b.load()
	if got == nil || index != 5 || got.Index != 0 || got.SpecVersion != 3 || got.PlanEpoch != 9 || string(got.Plan) != `{"a":1}` || got.TicketKeys != nil {
		t.Fatalf("loaded %+v", got)
	}
	old := []byte(`{"index":5,"spec_version":3,"spec":"x","plan_epoch":9,"plan":{"spec":3}}`)
	if err := os.WriteFile(b.path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.load(); got == nil || string(got.Plan) != `{"spec":3}` {
		t.Errorf("of an older release's backup %+v is loaded", got)
	}
	st.Plan = []byte{2, 0, 255, 10}
	if err := b.write(st); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.load(); got == nil || string(got.Plan) != string(st.Plan) {
		t.Errorf("a plan in bytes is loaded as %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "last-state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, _ := b.load(); st != nil {
		t.Error("rubbish is loaded")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%d files are left behind", len(left))
	}
}

// TestLeftOverBackupsAreDeleted: a crash between writing and renaming leaves a file with the zone's keys.
func TestLeftOverBackupsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"last-state.json", "last-state.json.123456", "other.json.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newBackup(dir, slog.New(slog.DiscardHandler))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}
