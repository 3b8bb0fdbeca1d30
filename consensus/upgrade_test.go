package consensus

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// goldenLaterSnapshot is a snapshot, and goldenLaterLog a log, as a later release may write it.
const (
	goldenLaterSnapshot = "state-v9.snap"
	goldenLaterLog      = "log-later.txt"
)

// laterCommands are commands of a later release: with unknown fields, of a kind that may be skipped, and of one that
// may not. None of them stops this release, and only the last is refused.
func laterCommands(t *testing.T) [][]byte {
	t.Helper()
	spec := mustEncode(t, command{Kind: kindPutSpec, ID: "s1", Body: []byte("regions: []\n"), Actor: "alice", At: noon})
	return [][]byte{
		append([]byte(strings.TrimSuffix(string(spec), "}")), `,"staged":true,"rollout":{"percent":5}}`...),
		mustEncode(t, command{Kind: kindAuditNote, ID: "n1", Action: "member add", Path: "g4", Actor: "alice", Reason: "growth", At: noon}),
		append([]byte{byte(kindOptional | 42)}, `{"hint":1}`...),
		append([]byte{42}, `{"must":1}`...),
		mustEncode(t, command{Kind: kindPutDrain, ID: "d1", Path: "eu", Actor: "bob", At: noon}),
	}
}

func TestLogOfALaterRelease(t *testing.T) {
	path := filepath.Join("testdata", goldenLaterLog)
	if *updateGolden {
		writeGoldenLog(t, path, laterCommands(t))
	}
	s := replayGoldenLog(t, path)
	if s.SpecVersion != 1 || len(s.Drains) != 1 || len(s.Audit) != 3 || s.Index != 5 {
		t.Fatalf("a later release's log leads to %+v", s)
	}
	for i, want := range []resultCode{codeOK, codeOK, codeOK, codeRefused, codeOK} {
		if _, r := applyEntry(&State{}, logEntry{index: 1, term: 2, data: laterCommands(t)[i]}, stateChecks{}); r.Code != want {
			t.Errorf("entry %d is answered %q (%s), want %q", i+1, r.Code, r.Message, want)
		}
		if _, r := applyEntry(&State{}, logEntry{index: 1, term: 2, data: laterCommands(t)[3]}, stateChecks{}); !strings.Contains(r.Message, "upgrade it") {
			t.Errorf("an unknown command is refused with %q", r.Message)
		}
	}
}

// TestSnapshotOfALaterReleaseIsRefused checks that the error of a snapshot of a later release names the cause:
// reported as damaged, an operator would delete it.
func TestSnapshotOfALaterReleaseIsRefused(t *testing.T) {
	path := filepath.Join("testdata", goldenLaterSnapshot)
	if *updateGolden {
		b := []byte(`spillway state 9` + "\n" + `{"index":7,"everything":"else"}`)
		sum := sha256.Sum256(b)
		if err := os.WriteFile(path, append(b, sum[:]...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var later ErrNewerFormat
	if _, err := DecodeArchive(b); !errors.As(err, &later) || later.Version != 9 || !strings.Contains(err.Error(), "run that release") {
		t.Fatalf("an archive of a later release: %v", err)
	}

	s := newSoloNode(t)
	dir := s.writeState()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, retainedSnapshots, hcLogger{logger: discardLog()})
	if err != nil {
		t.Fatal(err)
	}
	_, trans := raft.NewInmemTransport("g1")
	sink, err := snaps.Create(raft.SnapshotVersionMax, 1000, 9, raft.Configuration{}, 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.startNode(dir)
	if !errors.As(err, &later) || errors.As(err, new(ErrDamaged)) {
		t.Fatalf("starting over a later release's snapshot: %v", err)
	}
	if _, err := RecoverNode(s.nodeConfig(dir), true); !errors.As(err, &later) {
		t.Fatalf("salvaging a later release's snapshot: %v, want it left alone", err)
	}
}
