package consensus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden log and snapshot; only ever for a new format version")

const (
	goldenLog      = "log-v1.txt"
	goldenSnapshot = "state-v1.snap"
)

// goldenCommands contains every kind, and each reason for which the state refuses one.
func goldenCommands(t *testing.T) [][]byte {
	key := bytes.Repeat([]byte{7}, ticketKeySize)
	return [][]byte{
		mustEncode(t, command{Kind: kindPutSpec, ID: "s1", Body: []byte("regions: []\n"), Actor: "alice", At: noon}),
		mustEncode(t, command{Kind: kindPutSpec, ID: "s1", Body: []byte("regions: []\n"), Actor: "alice", At: noon}),
		mustEncode(t, command{Kind: kindPutSpec, ID: "s2", Body: []byte("late"), Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindPutSpec, ID: "s3", BasedOn: 1, Body: []byte("regions: [eu]\n"), Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindRotateKey, ID: "k1", Body: key, At: noon}),
		mustEncode(t, command{Kind: kindPutPlan, Term: 2, Body: []byte("plan"), At: noon}),
		mustEncode(t, command{Kind: kindPutPlan, Term: 1, BasedOn: 1, Body: []byte("older"), At: noon}),
		mustEncode(t, command{Kind: kindPutDrain, ID: "d1", Path: "us", Until: noon.Add(time.Hour), Reason: "repair", Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindPutDrain, ID: "d2", Path: "eu/a", Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindPutDrain, ID: "d3", Path: "ap", Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindDeleteDrain, ID: "d4", Path: "ap", Actor: "bob", At: noon}),
		mustEncode(t, command{Kind: kindExpireDrains, ID: "e1", At: noon.Add(2 * time.Hour)}),
		{0xc0, 'f', 'u', 't', 'u', 'r', 'e'},
		{0x40, 'f', 'u', 't', 'u', 'r', 'e'},
	}
}

// TestGoldenLog replays a log that an earlier release wrote: each line holds an entry and the hash of the state after
// it.
func TestGoldenLog(t *testing.T) {
	path := filepath.Join("testdata", goldenLog)
	if *updateGolden {
		writeGoldenFiles(t, path)
	}
	s := replayGoldenLog(t, path)
	if s.SpecVersion != 2 || s.PlanEpoch != 1 || len(s.Drains) != 1 || len(s.TicketKeys) != 1 {
		t.Fatalf("the log leads to %+v", s)
	}
	snap, err := os.Open(filepath.Join("testdata", goldenSnapshot))
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	if old, err := decodeState(snap); err != nil || old.Hash() != s.Hash() {
		t.Fatalf("the golden snapshot is not the golden log's state: %v", err)
	}
}

// replayGoldenLog applies a golden log and compares the state after each entry with its recorded hash.
func replayGoldenLog(t *testing.T, path string) *State {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &State{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		data, hash, _ := strings.Cut(line, " ")
		raw, err := hex.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		if s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 2, data: raw}, stateChecks{}); s.Hash() != hash {
			t.Fatalf("entry %d of %s now leads to another state: nodes of two releases would differ", i+1, path)
		}
	}
	return s
}

func writeGoldenLog(t *testing.T, path string, commands [][]byte) *State {
	t.Helper()
	var out strings.Builder
	s := &State{}
	for i, data := range commands {
		s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 2, data: data}, stateChecks{})
		fmt.Fprintf(&out, "%x %s\n", data, s.Hash())
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func writeGoldenFiles(t *testing.T, path string) {
	t.Helper()
	snap, err := encodeState(writeGoldenLog(t, path, goldenCommands(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", goldenSnapshot), snap, 0o644); err != nil {
		t.Fatal(err)
	}
}

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
