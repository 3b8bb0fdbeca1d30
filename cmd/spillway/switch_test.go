package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestSwitchTexts checks what switch status and a dry run print.
func TestSwitchTexts(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	g := admin.SwitchStatus{From: "tokyo", To: "virginia", Practice: true, OverMS: 600_000, HoldMS: 60_000, Step: "shift", StepAt: at, Active: true, Drained: true, Remaining: 0.25, Actor: "uid:7", Reason: "quarterly", At: at}
	var b strings.Builder
	printSwitchStatus(&b, &g)
	g.Practice, g.Active, g.Step, g.Note = false, false, "done", "tokyo stays drained"
	printSwitchStatus(&b, &g)
	printSwitchStatus(&b, nil)
	printSwitchCheck(&b, "tokyo", "virginia", &admin.SwitchAnswer{Problems: []string{"virginia is drained"}})
	printSwitchCheck(&b, "tokyo", "virginia", &admin.SwitchAnswer{})
	const want = `practice of tokyo to virginia, by uid:7 at 2026-01-02 03:00:00: quarterly
03:00:00  shift    new clients leave over 10m0s
tokyo gets 25.0 % of its new clients; ` + "`spillway switch abort`" + ` brings all back
switch of tokyo to virginia, by uid:7 at 2026-01-02 03:00:00: quarterly
03:00:00  done     done (tokyo stays drained)
tokyo is drained: ` + "`spillway undrain region tokyo`" + ` brings its clients back
no region was switched yet: ` + "`spillway switch REGION --to REGION --practice`" + ` tries it
switch of tokyo to virginia, dry run: nothing is moved
problem: virginia is drained
switch of tokyo to virginia, dry run: nothing is moved
virginia can serve the clients of tokyo
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestSwitchNeedsATarget: a switch without --to is refused before a node is contacted.
func TestSwitchNeedsATarget(t *testing.T) {
	for _, args := range [][]string{{"switch", "tokyo"}, {"switch", "--to", "virginia"}, {"switch", "tokyo", "--to", "virginia", "--over", "-1m"}} {
		root := newRootCommand()
		root.SetArgs(append(args, "--server", "unix:///nowhere/admin.sock"))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--to names the region") && !strings.Contains(err.Error(), "--over is -1m0s") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
