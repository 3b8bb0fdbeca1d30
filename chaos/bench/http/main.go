//go:build !windows

// Command httpbench measures the cost of the request path: one relayed request, one relayed event of a stream, one
// open stream, and the delay of a first token. It runs Spillway's real binary, a local instance alone and a gateway
// with a local instance behind their mutual TLS, next to HAProxy and nginx if those are installed, in front of the
// same worker, under the same load, in turns.
//
// All servers share one core in turns; worker and clients have the other. CPU time is the kernel's accounting of a
// process divided by the work done, refusals and broken answers are counted, and a table lists the comparisons.
// Compare ratios, and only within one run. The bounds are the project's targets.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// contextOfRun ends when the program is interrupted.
var contextOfRun context.Context

// httpBenchOptions are the options of a comparison.
type httpBenchOptions struct {
	spillway, dir            string
	beforeBinary             string
	rounds                   int
	window                   time.Duration
	onlySystems, suites      string
	pace                     float64
	heldStreams, soakStreams int
	rates                    string
	workerPID                int
	soakFor                  time.Duration
	cores                    string // of servers
	generator                int    // core of worker and clients
}

func main() {
	o := httpBenchOptions{cores: "0", generator: 1}
	flag.StringVar(&o.spillway, "spillway", "bin/spillway", "the binary to measure")
	flag.StringVar(&o.beforeBinary, "before", "", "another binary to compare it with, such as that of the last commit")
	flag.StringVar(&o.dir, "dir", "bin/httpbench", "where servers run")
	flag.IntVar(&o.rounds, "rounds", 5, "turns of each server")
	flag.DurationVar(&o.window, "window", 1500*time.Millisecond, "length of a turn")
	flag.StringVar(&o.onlySystems, "only", "local,path,secure,haproxy,haproxy-work,haproxies,haproxies-secure,nginx", "what to run")
	flag.StringVar(&o.suites, "suites", "request,paced,workers,event,memory,first", "what to measure")
	flag.Float64Var(&o.pace, "pace", 4000, "requests a second of the suites paced and workers")
	flag.IntVar(&o.heldStreams, "held", 2000, "open streams whose memory is measured")
	flag.StringVar(&o.rates, "rates", "1000", "streams a second of the suite first, several apart by commas")
	flag.IntVar(&o.soakStreams, "soaked", 20_000, "streams that the suite soak holds open")
	flag.DurationVar(&o.soakFor, "for", 5*time.Minute, "how long it does")
	work := flag.String("work", "", "run only the worker, at this address")
	addresses := flag.Int("addresses", 0, "run only so many workers, each at an address of its own")
	flag.Parse()
	var stop context.CancelFunc
	contextOfRun, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := func() error { return runBench(&o) }
	switch {
	case *work != "":
		run = func() error { return runWorker(*work) }
	case *addresses > 0:
		run = func() error { return runWorkers(*addresses) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "httpbench:", err)
		os.Exit(1)
	}
}

func runWorker(addr string) error {
	runtime.GOMAXPROCS(4) // one is always used by the pacer
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(contextOfRun, func() { _ = l.Close() })
	if err := serveWorker(l); contextOfRun.Err() == nil {
		return err
	}
	return nil
}

// runWorkers serves as many workers.
func runWorkers(n int) error {
	runtime.GOMAXPROCS(4)
	failed := make(chan error, n)
	for i := range n {
		l, err := net.Listen("tcp", manyAddress(i))
		if err != nil {
			return err
		}
		context.AfterFunc(contextOfRun, func() { _ = l.Close() })
		go func() { failed <- acceptRequests(l, nil) }()
	}
	if err := <-failed; contextOfRun.Err() == nil {
		return err
	}
	return nil
}

func runBench(o *httpBenchOptions) error {
	defer printDuration(time.Now())
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("servers and clients need a core each, and this machine has one")
	}
	runtime.LockOSThread() // children end with the thread that started them
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := machine.PinProcess(o.generator); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", logPort)) // never read: the kernel drops what does not fit
	if err != nil {
		return err
	}
	defer log.Close()
	worker := fmt.Sprintf("127.0.0.1:%d", workerPort)
	cmd := exec.Command(self, "-work", worker)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	machine.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	o.workerPID = cmd.Process.Pid
	all, err := o.startSystems(dir, worker)
	defer func() {
		for _, s := range all {
			s.killProcesses()
		}
	}()
	if err != nil {
		return err
	}
	for _, suite := range suites {
		if slices.Contains(strings.Split(o.suites, ","), suite.name) {
			if err := suite.run(o, all, worker); err != nil {
				return fmt.Errorf("%s: %w", suite.name, err)
			}
		}
	}
	return nil
}

// startSystems starts the available systems and waits until all of them answer.
func (o *httpBenchOptions) startSystems(dir, worker string) (all []*benchSystem, err error) {
	list := append(ownSystems(o.spillway, ""), peerSystems(o.spillway)...)
	if o.beforeBinary != "" {
		list = append(list, ownSystems(o.beforeBinary, beforeSuffix)...)
	}
	for i, s := range list {
		if !slices.Contains(strings.Split(o.onlySystems, ","), strings.TrimSuffix(s.label, beforeSuffix)) {
			continue
		}
		if err := s.findPrograms(); err != nil {
			if s.debianPackage == "" {
				return all, err
			}
			fmt.Printf("without %s: %v\n", s.label, err)
			continue
		}
		s.port, s.worker, s.dir = basePort+portsPerSystem*i, worker, filepath.Join(dir, s.label)
		all = append(all, s)
		if err := s.startProcesses(o.cores); err != nil {
			return all, fmt.Errorf("starting %s: %w", s.label, err)
		}
	}
	return all, contextOfRun.Err()
}
