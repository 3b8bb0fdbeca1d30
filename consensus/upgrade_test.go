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

// goldenNewer is a snapshot as a release to come may write it; goldenLater a log.
const (
	goldenNewer = "state-v9.snap"
	goldenLater = "log-later.txt"
)

// laterCommands are what a later release may write: fields that we do not know, a command that we may skip, and one that
// we may not. None of them stops this release, and only the last is refused.
func laterCommands(t *testing.T) [][]byte {
	t.Helper()
	spec := must(t, command{Kind: kindPutSpec, ID: "s1", Body: []byte("regions: []\n"), Actor: "alice", At: noon})
	return [][]byte{
		append([]byte(strings.TrimSuffix(string(spec), "}")), `,"staged":true,"rollout":{"percent":5}}`...),
		must(t, command{Kind: kindNote, ID: "n1", Action: "member add", Path: "g4", Actor: "alice", Reason: "growth", At: noon}),
		append([]byte{byte(kindOptional | 42)}, `{"hint":1}`...),
		append([]byte{42}, `{"must":1}`...),
		must(t, command{Kind: kindPutDrain, ID: "d1", Path: "eu", Actor: "bob", At: noon}),
	}
}

func TestLaterLog(t *testing.T) {
	path := filepath.Join("testdata", goldenLater)
	if *update {
		writeLog(t, path, laterCommands(t))
	}
	s := replay(t, path)
	if s.SpecVersion != 1 || len(s.Drains) != 1 || len(s.Audit) != 3 || s.Index != 5 {
		t.Fatalf("a later release's log leads to %+v", s)
	}
	for i, want := range []code{codeOK, codeOK, codeOK, codeRefused, codeOK} {
		if _, r := apply(&State{}, entry{index: 1, term: 2, data: laterCommands(t)[i]}, checks{}); r.Code != want {
			t.Errorf("entry %d is answered %q (%s), want %q", i+1, r.Code, r.Message, want)
		}
		if _, r := apply(&State{}, entry{index: 1, term: 2, data: laterCommands(t)[3]}, checks{}); !strings.Contains(r.Message, "upgrade it") {
			t.Errorf("an unknown command is refused with %q", r.Message)
		}
	}
}

// TestLaterSnapshot holds that a snapshot of a later release is refused for what it is: not as damaged, which would have
// an operator throw it away.
func TestLaterSnapshot(t *testing.T) {
	path := filepath.Join("testdata", goldenNewer)
	if *update {
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
	var later ErrNewer
	if _, err := Contents(b); !errors.As(err, &later) || later.Version != 9 || !strings.Contains(err.Error(), "run that release") {
		t.Fatalf("an archive of a later release: %v", err)
	}

	s := newSolo(t)
	dir := s.state()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, retained, hcLogger{to: discard()})
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
	_, err = s.start(dir)
	if !errors.As(err, &later) || errors.As(err, new(ErrDamaged)) {
		t.Fatalf("starting over a later release's snapshot: %v", err)
	}
	if _, err := Recover(s.config(dir), true); !errors.As(err, &later) {
		t.Fatalf("salvaging a later release's snapshot: %v, want it left alone", err)
	}
}
