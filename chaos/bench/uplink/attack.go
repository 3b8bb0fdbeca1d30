package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/internal/uplink/abusetest"
)

const (
	attackSettleTime = 3 * time.Second
	rogueName        = "rogue"
)

// rogueKinds are the misbehaviors of one child, each for a while.
var rogueKinds = []string{abusetest.FloodSummaries, abusetest.ClaimOtherZone, abusetest.SendGarbage}

func rogueID() identity.ID {
	return identity.ID{TrustDomain: "bench.test", Role: identity.RoleLocal, Region: "us", Zone: rogueName, Name: rogueName}
}

// runAttacks adds one misbehaving child, in a process of its own, and reports the effect of each kind of misbehavior
// on the parent and the other children.
func runAttacks(ctx context.Context, o *uplinkBenchOptions, p *uplink.Parent, d *summaryDesk, parent, dir string) error {
	for _, kind := range rogueKinds {
		_, stop, err := startOwnBinary(ctx, "-parent", parent, "-dir", dir, "-rogue", kind)
		if err != nil {
			return err
		}
		sleepContext(ctx, attackSettleTime)
		refused := p.RefusedCount()
		w, err := d.watchParent(ctx, o.window/2)
		stop()
		if err != nil {
			return err
		}
		fmt.Printf("  one child %-8s parent %5.1f %% of a core; the others' age p50 %v, p99 %v, worst %v; it is refused %.0f times a second; waited for a processor %.0f %%\n",
			kind+":", 100*w.own.cores, quantileOf(w.age, 0.5), quantileOf(w.age, 0.99), quantileOf(w.age, 1), float64(p.RefusedCount()-refused)/(o.window/2).Seconds(), 100*w.own.waited)
	}
	return nil
}

// runRogue is the process of that child.
func runRogue(ctx context.Context, o *uplinkBenchOptions) error {
	certs, err := identity.LoadCerts(rogueID().FilesIn(o.dir), nil)
	if err != nil {
		return err
	}
	_, err = abusetest.RunAbuser(ctx, o.rogue, o.parent, certs)
	return err
}

// startOwnBinary starts this program again. It returns the process and a function that ends it.
func startOwnBinary(ctx context.Context, args ...string) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr, cmd.Cancel, cmd.WaitDelay = os.Stderr, func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	machine.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()                       // an error is expected then
	}, nil
}
