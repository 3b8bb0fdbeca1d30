package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spillway-lb/spillway/chaos/machine"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/internal/uplink/rogue"
)

const (
	attackSettles = 3 * time.Second
	attackName    = "rogue"
)

// attacks are what one child of all does, each for a while.
var attacks = []string{rogue.Floods, rogue.Lies, rogue.Garbage}

func rogueID() identity.ID {
	return identity.ID{TrustDomain: "bench.test", Role: identity.RoleLocal, Region: "us", Zone: attackName, Name: attackName}
}

// attack has one child more misbehave in every way, in a process of its own, and shows what that does to the parent and
// to the others.
func attack(ctx context.Context, o *options, p *uplink.Parent, d *desk, parent, dir string) error {
	for _, kind := range attacks {
		_, stop, err := startSelf(ctx, "-parent", parent, "-dir", dir, "-rogue", kind)
		if err != nil {
			return err
		}
		sleep(ctx, attackSettles)
		refused := p.Refused()
		w, err := d.watch(ctx, o.window/2)
		stop()
		if err != nil {
			return err
		}
		fmt.Printf("  one child %-8s parent %5.1f %% of a core; the others' age p50 %v, p99 %v, worst %v; it is refused %.0f times a second; waited for a processor %.0f %%\n",
			kind+":", 100*w.own.cores, at(w.age, 0.5), at(w.age, 0.99), at(w.age, 1), float64(p.Refused()-refused)/(o.window/2).Seconds(), 100*w.own.waited)
	}
	return nil
}

// misbehave is the process of the one child.
func misbehave(ctx context.Context, o *options) error {
	certs, err := identity.Load(rogueID().FilesIn(o.dir), nil)
	if err != nil {
		return err
	}
	_, err = rogue.Run(ctx, o.rogue, o.parent, certs)
	return err
}

// startSelf runs this program once more. What it returns is that process, and ends it.
func startSelf(ctx context.Context, args ...string) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr, cmd.Cancel, cmd.WaitDelay = os.Stderr, func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	machine.DieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()                       // so may this say
	}, nil
}
