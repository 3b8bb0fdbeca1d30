package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
)

const smallDrill = `drill small
title A small drill
hypothesis It ends.
load 1 requests/s for 40 s, prompts 100 tokens, answers 5 tokens
at 10 s for 5 s leader_dead
`

// smallLog is a log of a run in which one request was answered.
func smallLog(t *testing.T, previous string) *drill.EventLog {
	t.Helper()
	f, err := drill.ParseFile("small.txt", []byte(smallDrill))
	if err != nil {
		t.Fatal(err)
	}
	return &drill.EventLog{
		Header: drill.LogHeader{Format: drill.LogFormat, Drill: string(drill.FormatFile(f)), Way: drill.WayVirtual, Seed: 1, Observes: []drill.EventKind{drill.RequestDue, drill.RequestEnded}, Previous: previous},
		Events: []drill.Event{
			{At: time.Second, Kind: drill.RequestDue, Request: 1, Target: "tokyo", Text: "acme", Number: 5},
			{At: 2 * time.Second, Kind: drill.RequestEnded, Request: 1, Text: "ok", TTFT: .1, Number: 5, Good: true},
			{At: 10 * time.Second, Kind: drill.FaultInjected},
			{At: 15 * time.Second, Kind: drill.FaultCleared},
			{At: 16 * time.Second, Kind: drill.FaultVerified, Text: "it runs"},
		},
	}
}

// TestRunsAreChained: stored runs verify; a changed log, a changed index and a removed run are each found.
func TestRunsAreChained(t *testing.T) {
	dir := t.TempDir()
	a := Open(dir)
	for range 3 {
		id, previous, err := a.NewRun("small")
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.StoreRun(id, smallLog(t, previous), nil)
		if err != nil || r.Verdict.Outcome != drill.Passed {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	all, err := a.Entries()
	if err != nil || len(all) != 3 || all[0].ID != "0001-small" || all[2].ID != "0003-small" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, e := range all {
		if problems, err := a.VerifyRun(e.ID); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", e.ID, problems, err)
		}
	}
	for _, name := range []string{"report.json", "report.md", "report.html"} {
		if text, err := os.ReadFile(filepath.Join(a.RunDir("0003-small"), name)); err != nil || !strings.Contains(string(text), all[2].Chain) {
			t.Errorf("%s has no chain value: %v", name, err)
		}
	}
	index, err := os.ReadFile(a.indexPath())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(index), "\n")
	write := func(text string) {
		if err := os.WriteFile(a.indexPath(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(lines[0] + lines[2])
	if problems, err := a.VerifyRun("0003-small"); err != nil || len(problems) == 0 {
		t.Errorf("a removed run is not found: %v", err)
	}
	write(strings.Replace(string(index), "PASSED", "VOID", 1))
	if problems, err := a.VerifyRun("0001-small"); err != nil || len(problems) == 0 {
		t.Errorf("a changed outcome is not found: %v", err)
	}
	write(string(index))
	path := filepath.Join(a.RunDir("0002-small"), "log.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"ok"`, `"no"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if problems, err := a.VerifyRun("0002-small"); err != nil || len(problems) != 1 || !strings.Contains(problems[0], "was changed") {
		t.Errorf("a changed log: %v, %v", problems, err)
	}
}

// TestLeverAndAbort: a run ends for its own abort and for the lever of all runs, and the lever can be released.
func TestLeverAndAbort(t *testing.T) {
	a := Open(t.TempDir())
	id, _, err := a.NewRun("small")
	if err != nil {
		t.Fatal(err)
	}
	if got := a.StopReason(id); got != "" {
		t.Errorf("a new run has to end: %s", got)
	}
	if err := a.PullLever("an incident"); err != nil {
		t.Fatal(err)
	}
	if got := a.StopReason(id); got != "stop-all: an incident" {
		t.Errorf("with the lever pulled: %q", got)
	}
	if err := a.ReleaseLever(); err != nil || a.LeverReason() != "" {
		t.Errorf("after the release: %v, %q", err, a.LeverReason())
	}
	if err := a.AbortRun(id, "enough"); err != nil || a.StopReason(id) != "aborted by an operator: enough" {
		t.Errorf("after the abort: %v, %q", err, a.StopReason(id))
	}
	if err := a.AbortRun("0009-other", "enough"); err == nil {
		t.Error("a run that does not exist is aborted")
	}
}
