package main

import (
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestInFlightAt counts what a waiting drain waits for.
func TestInFlightAt(t *testing.T) {
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
		if got := inFlightAt(st, path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

// TestPrintImpact shows what would be left, and after the fact only what was forced.
func TestPrintImpact(t *testing.T) {
	x := &admin.DrainImpact{
		Regions: 3, RegionsLeft: 2, Models: []admin.DrainModel{{Name: "m", Workers: 8, WorkersLeft: 2, Rate: 8000, RateLeft: 2000, Demand: 3000, WaitSeconds: 0.01, WaitLeftSeconds: -1}},
		Below: []string{"too little"},
	}
	var dry, done strings.Builder
	printImpact(&dry, x, true)
	for _, want := range []string{"regions that take clients: 3, then 2", "overload", "would be refused without --force: too little"} {
		if !strings.Contains(dry.String(), want) {
			t.Errorf("a dry run lacks %q:\n%s", want, dry.String())
		}
	}
	if printImpact(&done, x, false); done.String() != "forced: too little\n" {
		t.Errorf("afterwards it says %q", done.String())
	}
	printImpact(&done, nil, true)
}
