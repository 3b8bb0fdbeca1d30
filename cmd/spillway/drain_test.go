package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// TestCountInFlight checks the requests in flight that drain --wait waits for.
func TestCountInFlight(t *testing.T) {
	worker := func(name string, n int64) admin.WorkerStatus { return admin.WorkerStatus{Name: name, InFlight: n} }
	st := &admin.Status{Regions: []admin.RegionStatus{
		{
			Name: "virginia", Gateways: []admin.GatewayStatus{{InFlight: 2}, {InFlight: 3}},
			Zones: []admin.ZoneStatus{
				{Name: "a", Instance: "l1", Workers: []admin.WorkerStatus{worker("w1", 1), worker("w2", 3)}},
				{Name: "b", Instance: "l1", Workers: []admin.WorkerStatus{worker("w1", 0)}},
			},
		},
		{Name: "tokyo", Note: "did not answer: shown as last reported"},
	}}
	for path, want := range map[string]int64{
		"virginia": 5, "virginia/a": 4, "virginia/b": 0, "virginia/a/w2": 3, "virginia/a/w9": -1, "virginia/c": -1, "tokyo": -1, "tokyo/a": -1, "nowhere": -1,
	} {
		if got := countInFlight(st, path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

// TestPrintDrainImpact: a dry run prints the remaining capacity, a drain only violated minimums.
func TestPrintDrainImpact(t *testing.T) {
	x := &admin.DrainImpact{
		Regions: 3, RegionsLeft: 2, Models: []admin.DrainModel{{Name: "m", Workers: 8, WorkersLeft: 2, Rate: 8000, RateLeft: 2000, Demand: 3000, WaitSeconds: 0.01, WaitLeftSeconds: -1}},
		Below: []string{"too little"},
	}
	var dry, done strings.Builder
	printDrainImpact(&dry, x, true)
	for _, want := range []string{"serving regions: 3 now, 2 after the drain", "overload", "would be refused without --force: too little"} {
		if !strings.Contains(dry.String(), want) {
			t.Errorf("a dry run lacks %q:\n%s", want, dry.String())
		}
	}
	if printDrainImpact(&done, x, false); done.String() != "forced: too little\n" {
		t.Errorf("the drain prints %q", done.String())
	}
	printDrainImpact(&done, nil, true)
}

// TestGradualDrainTexts checks the texts of a gradual drain: its schedule and its progress.
func TestGradualDrainTexts(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	var b strings.Builder
	printDrainSchedule(&b, 10*time.Minute)
	printDrains(&b, &admin.DrainAnswer{Drains: []admin.Drain{
		{Path: "tokyo", Actor: "uid:7", At: at, OverMS: 600_000},
		{Path: "virginia", Reason: "power", Actor: "uid:7", At: at},
	}}, at.Add(150*time.Second))
	printDrainSchedule(&b, 0)
	const want = `AFTER  REMAINING NEW TRAFFIC
0s     100.0 %
2m30s  75.0 %
5m0s   50.0 %
7m30s  25.0 %
10m0s  0.0 %
PATH      TRAFFIC                    UNTIL      BY     REASON
tokyo     25.0 % drained, complete at 03:10:00  undrained  uid:7  -
virginia  all drained                   undrained  uid:7  power
`
	if got, want := strings.Join(strings.Fields(b.String()), " "), strings.Join(strings.Fields(want), " "); got != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestListedDrainTexts checks how status and snapshot inspect list drains.
func TestListedDrainTexts(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		d    consensus.Drain
		want string
	}{
		{consensus.Drain{Path: "iad"}, "drained: iad until undrained\n"},
		{consensus.Drain{Path: "iad", Actor: "uid:7"}, "drained: iad until undrained (by uid:7)\n"},
		{consensus.Drain{Path: "iad", Reason: "power"}, "drained: iad until undrained (power)\n"},
		{consensus.Drain{Path: "iad/a", Reason: "power", Actor: "uid:7", Until: noon}, "drained: iad/a until 2026-01-02 12:00:00 (power, by uid:7)\n"},
		{consensus.Drain{Path: "iad/a", Actor: "uid:7", At: noon, Over: 10 * time.Minute}, "drained: iad/a until undrained, over 10m0s from 2026-01-02 12:00:00 (by uid:7)\n"},
	} {
		var b strings.Builder
		printClusterState(&b, &consensus.State{Index: 7, Term: 2, Drains: []consensus.Drain{c.d}})
		if _, got, _ := strings.Cut(b.String(), "BYTES\n"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if !strings.HasPrefix(b.String(), "intact; log index 7, term 2\n") {
			t.Errorf("it begins with %q", b.String())
		}
	}
}

// TestInvalidDrainTimesAreRefused: invalid durations are refused before a node is contacted.
func TestInvalidDrainTimesAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--for", "-1m"}, "--for is -1m0s: write a positive duration, such as 30m"},
		{[]string{"--over", "-1m"}, "--over is -1m0s: write a positive duration, such as 10m"},
		{[]string{"--for", "0001"}, "missing unit in duration"},
		{[]string{"--over", "soon"}, "invalid duration"},
	} {
		root := newRootCommand()
		root.SetArgs(append([]string{"drain", "region", "tokyo", "--server", "unix:///nowhere/admin.sock"}, c.args...))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
