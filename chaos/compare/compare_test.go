package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-policies", "best"}, {"-seeds", "0"}, {"-busy", "0"}, {"-busy", "NaN"}, {"-nonsense"}} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	o, err := parse([]string{"-policies", "all"})
	if err != nil || len(o.policies) < 10 {
		t.Fatalf("%v %v", o, err)
	}
}

// TestCapacityIsWhatAWorkerCanDo: it grows with the GPU and lies where the engine's own figures say.
func TestCapacityIsWhatAWorkerCanDo(t *testing.T) {
	o, _ := parse(nil)
	small, err := capacity(o)
	if err != nil {
		t.Fatal(err)
	}
	o.gpu = "H100"
	large, err := capacity(o)
	if err != nil || small < 1 || small > 6 || large < 5*small {
		t.Errorf("an L4 does %.2f requests/s, an H100 %.2f (%v)", small, large, err)
	}
}

// TestOneTrial plays a short one over the real stack, healthy, and prints its row.
func TestOneTrial(t *testing.T) {
	o, _ := parse([]string{"-for", "2s", "-gpu", "H100"})
	r, err := play(context.Background(), o, trial{policy: "predictive", seed: 1, rate: 10, span: o.span, workers: 2, health: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &sum{policy: "predictive", slo: time.Minute, workers: 2}
	s.add(r)
	if w := s.runs[0]; w.sent < 5 || w.ok != w.sent || w.errors+w.refused > 0 || r.taken[0]+r.taken[1] < uint64(w.sent) {
		t.Errorf("%+v %v", w, s.kinds)
	}
	var out bytes.Buffer
	printSums(&out, []*sum{s}, true)
	if text := out.String(); !strings.Contains(text, "W2 slow") || !strings.Contains(text, "predictive") {
		t.Error(text)
	}
}

// TestABusyMachineIsSaidSo: figures of a run that could not send on time are marked.
func TestABusyMachineIsSaidSo(t *testing.T) {
	for lag, want := range map[time.Duration]bool{10 * time.Millisecond: false, time.Second: true} {
		s := &sum{slo: time.Second, workers: 1}
		s.add(&result{span: time.Second, taken: []uint64{1}, lag: lag, outcomes: []load.Outcome{{Verdict: "ok"}}})
		var out bytes.Buffer
		printSums(&out, []*sum{s}, false)
		if got := strings.Contains(out.String(), "NO EVIDENCE"); got != want {
			t.Errorf("with a lag of %v: %s", lag, out.String())
		}
	}
}

func TestOutcomesAreCountedOnce(t *testing.T) {
	s := &sum{slo: time.Second, workers: 1}
	due := time.Unix(100, 0)
	s.add(&result{span: 2 * time.Second, taken: []uint64{4}, outcomes: []load.Outcome{
		{Verdict: "ok", Due: due, First: due.Add(time.Second / 2)},
		{Verdict: "ok", Due: due, First: due.Add(3 * time.Second)},
		{Verdict: "refused", Status: 503, Code: "no_capacity"},
		{Verdict: "cut", Code: "upstream_lost"},
	}})
	w := s.runs[0]
	if w.sent != 4 || w.ok != 2 || w.refused != 1 || w.errors != 1 || w.good != 0.5 || w.p99 != 3*time.Second {
		t.Errorf("%+v", w)
	}
	if got := s.wrong(); got != "1 cut upstream_lost, 1 refused 503 no_capacity" {
		t.Error(got)
	}
}
