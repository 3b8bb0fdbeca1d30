package global

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestAuditRecordsActorAndChange makes three changes through different nodes and reads them on a third.
func TestAuditRecordsActorAndChange(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	text := strings.Replace(testSpecText(), "interval: 200ms", "interval: 300ms", 1)
	if _, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), admin.ApplyRequest{Name: "s", Text: text, Reason: "calmer"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.adminClient(p.nodes[1]).StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", Reason: "power"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.adminClient(p.nodes[1]).EndDrain(t.Context(), "tokyo", "power is back"); err != nil {
		t.Fatal(err)
	}
	var a *admin.AuditAnswer
	testkit.Eventually(t, "the third node has all four records", func() bool {
		var err error
		a, err = p.adminClient(p.nodes[2]).ListAudit(t.Context())
		return err == nil && len(a.Records) == 4
	})
	for i, want := range []struct{ action, subject, reason, detail string }{
		{"apply", "spec 1", "", ""},
		{"apply", "spec 2", "calmer", "200ms -> 300ms"},
		{"drain", "tokyo", "power", ""},
		{"undrain", "tokyo", "power is back", ""},
	} {
		r := a.Records[i]
		if r.Action != want.action || r.Subject != want.subject || r.Reason != want.reason || !strings.Contains(r.Detail, want.detail) || r.Actor == "" {
			t.Errorf("record %d is %+v, want %v", i, r, want)
		}
	}
}

// TestAuditorAppendsEachRecordOnce appends across restarts, after a line that a crash cut short, and past a gap.
func TestAuditorAppendsEachRecordOnce(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	fresh := func() *auditor { return newAuditor(dir, slog.New(slog.NewTextHandler(&log, nil))) }
	var all []consensus.AuditRecord
	for i := range 6 {
		all = append(all, consensus.AuditRecord{Seq: uint64(i + 1), Actor: "op", Action: "drain", Hash: "h"})
	}
	fresh().appendNew(all[:2])
	fresh().appendNew(all[:3])
	path := filepath.Join(dir, auditFileName)
	whole, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(whole, `{"seq":4,"act`...), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh().appendNew(all[1:5])
	fresh().appendNew(all[5:])
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var seqs []uint64
	torn := 0
	for in := bufio.NewScanner(f); in.Scan(); {
		var r consensus.AuditRecord
		if json.Unmarshal(in.Bytes(), &r) != nil {
			torn++
			continue
		}
		seqs = append(seqs, r.Seq)
	}
	if len(seqs) != 6 || seqs[5] != 6 || torn != 1 {
		t.Fatalf("file holds records %v and %d torn lines; %s", seqs, torn, &log)
	}
	blocked := newAuditor(filepath.Join(dir, "none", "such"), slog.New(slog.NewTextHandler(&log, nil)))
	blocked.appendNew(all[:1])
	blocked.appendNew(all[:1])
	if n := strings.Count(log.String(), "cannot be written"); n != 1 || blocked.lastSeq != 0 {
		t.Fatalf("a disk that takes nothing is logged %d times, want once", n)
	}
}
