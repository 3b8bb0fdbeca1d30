package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

func TestFlagsAreChecked(t *testing.T) {
	for _, bad := range [][]string{{"-policies", "best"}, {"-seeds", "0"}, {"-busy", "0"}, {"-busy", "NaN"}, {"-nonsense"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	o, err := parseFlags([]string{"-policies", "all"})
	if err != nil || len(o.policies) < 10 {
		t.Fatalf("%v %v", o, err)
	}
}

// TestCapacityFollowsTheEngine: capacity grows with the GPU and agrees with the engine's own figures.
func TestCapacityFollowsTheEngine(t *testing.T) {
	o, _ := parseFlags(nil)
	small, err := measureCapacity(o)
	if err != nil {
		t.Fatal(err)
	}
	o.gpu = "H100"
	large, err := measureCapacity(o)
	if err != nil || small < 1 || small > 6 || large < 5*small {
		t.Errorf("an L4 does %.2f requests/s, an H100 %.2f (%v)", small, large, err)
	}
}

// TestOneRunPrintsItsRow runs a short healthy run over the real stack and prints its row.
func TestOneRunPrintsItsRow(t *testing.T) {
	o, _ := parseFlags([]string{"-for", "2s", "-gpu", "H100"})
	r, err := playRun(context.Background(), o, policyRun{policy: "predictive", seed: 1, rate: 10, span: o.arrivalSpan, workers: 2, health: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &policySummary{policy: "predictive", slo: time.Minute, workers: 2}
	s.addRun(r)
	if w := s.runs[0]; w.sent < 5 || w.ok != w.sent || w.errors+w.refused > 0 || r.requestsByWorker[0]+r.requestsByWorker[1] < uint64(w.sent) {
		t.Errorf("%+v %v", w, s.failures)
	}
	var out bytes.Buffer
	printSummaries(&out, []*policySummary{s}, true)
	if text := out.String(); !strings.Contains(text, "W2 slow") || !strings.Contains(text, "predictive") {
		t.Error(text)
	}
}

// TestLateRunIsMarked: the figures of a run that could not send on time are marked.
func TestLateRunIsMarked(t *testing.T) {
	for lag, want := range map[time.Duration]bool{10 * time.Millisecond: false, time.Second: true} {
		s := &policySummary{slo: time.Second, workers: 1}
		s.addRun(&policyResult{span: time.Second, requestsByWorker: []uint64{1}, lag: lag, outcomes: []load.RequestOutcome{{Kind: "ok"}}})
		var out bytes.Buffer
		printSummaries(&out, []*policySummary{s}, false)
		if got := strings.Contains(out.String(), "INVALID"); got != want {
			t.Errorf("with a lag of %v: %s", lag, out.String())
		}
	}
}

func TestOutcomesAreCountedOnce(t *testing.T) {
	s := &policySummary{slo: time.Second, workers: 1}
	due := time.Unix(100, 0)
	s.addRun(&policyResult{span: 2 * time.Second, requestsByWorker: []uint64{4}, outcomes: []load.RequestOutcome{
		{Kind: "ok", Due: due, First: due.Add(time.Second / 2)},
		{Kind: "ok", Due: due, First: due.Add(3 * time.Second)},
		{Kind: "refused", Status: 503, Code: "no_capacity"},
		{Kind: "cut", Code: "upstream_lost"},
	}})
	w := s.runs[0]
	if w.sent != 4 || w.ok != 2 || w.refused != 1 || w.errors != 1 || w.goodput != 0.5 || w.p99 != 3*time.Second {
		t.Errorf("%+v", w)
	}
	if got := s.listFailures(); got != "1 cut upstream_lost, 1 refused 503 no_capacity" {
		t.Error(got)
	}
}
