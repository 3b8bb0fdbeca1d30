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

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/runtimetune"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Bounds of the parent's cost, and of the age of its data.
const (
	maxParentCores  = 0.30
	maxParentMemory = 500 << 20
	maxSummaryAge   = 300 * time.Millisecond
)

// runParent is the parent's process.
func runParent(ctx context.Context, o *uplinkBenchOptions) error {
	machine.RaisePriority()
	go runtimetune.TuneGC(ctx) // as in the parent's binary
	dir, err := os.MkdirTemp("", "uplinkbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	certs, err := issueCerts(dir, o.children)
	if err != nil {
		return err
	}
	d := newSummaryDesk()
	p, err := uplink.NewParent(uplink.ParentConfig{
		Listen: "127.0.0.1:0", Certs: certs, ChildRole: identity.RoleLocal, OnSummary: d.takeSummary,
		BuildDirective: func(capacity.Path) *uplink.Directive { return &uplink.Directive{Index: 1, Spec: make([]byte, 4000)} },
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
	crowd, others, err := startChildren(ctx, o, p.Addr().String(), dir)
	if err != nil {
		return err
	}
	defer others()
	d.childrenPID = crowd
	if err := measureParent(ctx, o, p, d); err != nil || !o.attacks {
		return err
	}
	return runAttacks(ctx, o, p, d, p.Addr().String(), dir)
}

func issueCerts(dir string, children int) (*identity.Certs, error) {
	ca, err := identity.NewDevCA(dir, "bench.test")
	if err != nil {
		return nil, err
	}
	for n := range children {
		if _, err := ca.IssueCert(childID(n), dir, time.Hour); err != nil {
			return nil, err
		}
	}
	if _, err := ca.IssueCert(rogueID(), dir, time.Hour); err != nil {
		return nil, err
	}
	f, err := ca.IssueCert(identity.ID{TrustDomain: "bench.test", Role: identity.RoleGateway, Region: "us", Name: "gw1"}, dir, time.Hour)
	if err != nil {
		return nil, err
	}
	return identity.LoadCerts(f, nil)
}

// startChildren starts this program as the children. It returns their process and a function that ends it.
func startChildren(ctx context.Context, o *uplinkBenchOptions, parent, dir string) (pid int, stop func(), err error) {
	args := []string{
		"-parent", parent, "-dir", dir, "-children", strconv.Itoa(o.children), "-models", strconv.Itoa(o.models), "-moving", strconv.Itoa(o.changing),
	}
	if o.profile != "" {
		args = append(args, "-profile", o.profile+".children")
	}
	return startOwnBinary(ctx, args...)
}

// measureParent waits for every child and for the warm-up, and then measures the parent for the window.
func measureParent(ctx context.Context, o *uplinkBenchOptions, p *uplink.Parent, d *summaryDesk) error {
	begun := time.Now()
	for len(p.Children()) < o.children {
		if time.Since(begun) > 5*time.Minute {
			return fmt.Errorf("only %d of %d children came", len(p.Children()), o.children)
		}
		if !sleepContext(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	fmt.Printf("%d sessions in %.1f s\n", o.children, time.Since(begun).Seconds())
	if !sleepContext(ctx, o.warmup) {
		return ctx.Err()
	}
	stop, err := startProfile(o.profile)
	if err != nil {
		return err
	}
	defer stop()
	w, err := d.watchParent(ctx, o.window)
	if err != nil {
		return err
	}
	return printReport(o, w)
}

func printReport(o *uplinkBenchOptions, w *parentFigures) error {
	peak, err := machine.PeakBytes(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("%d children x %d models, %d of them moving, for %v (load of the machine %s)\n", o.children, o.models, o.changing, o.window, machine.LoadAverage())
	good := printRow("parent's processor", fmt.Sprintf("%.1f %% of a core", 100*w.own.cores), "30 %", w.own.cores <= maxParentCores)
	good = printRow("parent's peak memory", fmt.Sprintf("%d MB", peak>>20), "500 MB", peak <= maxParentMemory) && good
	good = printRow("age of summaries p99", fmt.Sprintf("%v (p50 %v, worst %v)", quantileOf(w.age, 0.99), quantileOf(w.age, 0.5), quantileOf(w.age, 1)), "300 ms", quantileOf(w.age, 0.99) <= maxSummaryAge) && good
	fmt.Printf("  summaries received %.0f /s, %.0f us of the parent's CPU time each\n", w.rate, 1e6*w.own.cores/w.rate)
	fmt.Printf("  on the same %d cores the %d children, one process, used %.1f %% of a core and waited for one %.0f %% of the time; all else used %.1f %%\n",
		runtime.NumCPU(), o.children, 100*w.children.cores, 100*w.children.waited, 100*w.others)
	fmt.Printf("  of their age: made apart %s, on the way %s\n", formatQuantiles(w.intervals), formatQuantiles(w.delays))
	fmt.Printf("  parent's goroutines waited for a thread %s; its threads waited for a processor %.0f %% of the time\n", formatQuantiles(w.schedulingDelays), 100*w.own.waited)
	if o.strict && !good {
		return errors.New("a target was missed")
	}
	return nil
}

func formatQuantiles(ds []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v", quantileOf(ds, 0.5), quantileOf(ds, 0.99))
}

func printRow(what, figure, target string, good bool) bool {
	verdict := "ok"
	if !good {
		verdict = "MISSED"
	}
	fmt.Printf("  %-22s %-44s target %-7s %s\n", what, figure, target, verdict)
	return good
}

// quantileOf is a quantile, rounded to milliseconds.
func quantileOf(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[int(q*float64(len(s)-1))].Round(100 * time.Microsecond)
}

func sleepContext(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
