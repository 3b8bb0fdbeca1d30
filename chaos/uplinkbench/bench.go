package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/chaos/dnsload"
	"github.com/spillway-lb/spillway/chaos/machine"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/garbage"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// What the parent may cost, and how old its news may be.
const (
	maxCores  = 0.30
	maxMemory = 500 << 20
	maxAge    = 300 * time.Millisecond
)

// bench is the parent's process.
func bench(ctx context.Context, o *options) error {
	dnsload.Priority()
	go garbage.Keep(ctx) // as in the parent's binary
	dir, err := os.MkdirTemp("", "uplinkbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	certs, err := issue(dir, o.children)
	if err != nil {
		return err
	}
	d := newDesk()
	p, err := uplink.NewParent(uplink.ParentConfig{
		Listen: "127.0.0.1:0", Certs: certs, ChildRole: identity.RoleLocal, OnSummary: d.take,
		Directive: func(capacity.Path) *uplink.Directive { return &uplink.Directive{Index: 1, Spec: make([]byte, 4000)} },
	})
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Stop(end) // the process ends
	}()
	crowd, others, err := startCrowd(ctx, o, p.Addr().String(), dir)
	if err != nil {
		return err
	}
	defer others()
	d.crowd = crowd
	if err := measure(ctx, o, p, d); err != nil || !o.attacks {
		return err
	}
	return attack(ctx, o, p, d, p.Addr().String(), dir)
}

func issue(dir string, children int) (*identity.Certs, error) {
	ca, err := identity.NewDevCA(dir, "bench.test")
	if err != nil {
		return nil, err
	}
	for n := range children {
		if _, err := ca.Issue(childID(n), dir, time.Hour); err != nil {
			return nil, err
		}
	}
	if _, err := ca.Issue(rogueID(), dir, time.Hour); err != nil {
		return nil, err
	}
	f, err := ca.Issue(identity.ID{TrustDomain: "bench.test", Role: identity.RoleGateway, Region: "us", Name: "gw1"}, dir, time.Hour)
	if err != nil {
		return nil, err
	}
	return identity.Load(f, nil)
}

// startCrowd runs this program as the children. What it returns is their process, and ends it.
func startCrowd(ctx context.Context, o *options, parent, dir string) (pid int, stop func(), err error) {
	args := []string{
		"-parent", parent, "-dir", dir, "-children", strconv.Itoa(o.children), "-models", strconv.Itoa(o.models), "-moving", strconv.Itoa(o.moving),
	}
	if o.profile != "" {
		args = append(args, "-profile", o.profile+".children")
	}
	return startSelf(ctx, args...)
}

// measure waits for every child, lets things settle, and looks at the parent for a while.
func measure(ctx context.Context, o *options, p *uplink.Parent, d *desk) error {
	begun := time.Now()
	for len(p.Children()) < o.children {
		if time.Since(begun) > 5*time.Minute {
			return fmt.Errorf("only %d of %d children came", len(p.Children()), o.children)
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	fmt.Printf("%d sessions in %.1f s\n", o.children, time.Since(begun).Seconds())
	if !sleep(ctx, o.warmup) {
		return ctx.Err()
	}
	stop, err := profile(o.profile)
	if err != nil {
		return err
	}
	defer stop()
	w, err := d.watch(ctx, o.window)
	if err != nil {
		return err
	}
	return report(o, w)
}

func report(o *options, w *watched) error {
	peak, err := machine.Peak(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("%d children x %d models, %d of them moving, for %v (load of the machine %s)\n", o.children, o.models, o.moving, o.window, machine.Load())
	good := row("parent's processor", fmt.Sprintf("%.1f %% of a core", 100*w.own.cores), "30 %", w.own.cores <= maxCores)
	good = row("parent's peak memory", fmt.Sprintf("%d MB", peak>>20), "500 MB", peak <= maxMemory) && good
	good = row("age of statements p99", fmt.Sprintf("%v (p50 %v, worst %v)", at(w.age, 0.99), at(w.age, 0.5), at(w.age, 1)), "300 ms", at(w.age, 0.99) <= maxAge) && good
	fmt.Printf("  statements taken %.0f /s, %.0f us of the parent's processor each\n", w.rate, 1e6*w.own.cores/w.rate)
	fmt.Printf("  on the same %d cores the %d children, one process, used %.1f %% of a core and waited for one %.0f %% of the time; all else used %.1f %%\n",
		runtime.NumCPU(), o.children, 100*w.crowd.cores, 100*w.crowd.waited, 100*w.others)
	fmt.Printf("  of their age: made apart %s, on the way %s\n", quantiles(w.apart), quantiles(w.onWay))
	fmt.Printf("  parent's goroutines waited for a thread %s; its threads waited for a processor %.0f %% of the time\n", quantiles(w.runnable), 100*w.own.waited)
	if o.strict && !good {
		return errors.New("a target was missed")
	}
	return nil
}

func quantiles(ds []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v", at(ds, 0.5), at(ds, 0.99))
}

func row(what, figure, target string, good bool) bool {
	verdict := "ok"
	if !good {
		verdict = "MISSED"
	}
	fmt.Printf("  %-22s %-44s target %-7s %s\n", what, figure, target, verdict)
	return good
}

// at is a quantile, rounded to milliseconds.
func at(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[int(q*float64(len(s)-1))].Round(100 * time.Microsecond)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
