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

	"github.com/spillway-lb/spillway/chaos/machine"
)

// contextOfRun ends when somebody interrupts the program.
var contextOfRun context.Context

// options of a comparison.
type options struct {
	spillway, dir string
	before        string
	rounds        int
	window        time.Duration
	only, suites  string
	held, soaked  int
	rates         string
	workerPID     int
	soakFor       time.Duration
	cores         string // of servers
	generator     int    // core of worker and clients
}

func main() {
	o := options{cores: "0", generator: 1}
	flag.StringVar(&o.spillway, "spillway", "bin/spillway", "the binary to measure")
	flag.StringVar(&o.before, "before", "", "another binary to compare it with, such as that of the last commit")
	flag.StringVar(&o.dir, "dir", "bin/httpbench", "where servers run")
	flag.IntVar(&o.rounds, "rounds", 5, "turns of each server")
	flag.DurationVar(&o.window, "window", 2*time.Second, "length of a turn")
	flag.StringVar(&o.only, "only", "local,path,secure,haproxy,haproxies,haproxies-secure,nginx", "what to run")
	flag.StringVar(&o.suites, "suites", "request,event,memory,first", "what to measure")
	flag.IntVar(&o.held, "held", 2000, "open streams whose memory is measured")
	flag.StringVar(&o.rates, "rates", "1000", "streams a second of the suite first, several apart by commas")
	flag.IntVar(&o.soaked, "soaked", 20_000, "streams that the suite soak holds open")
	flag.DurationVar(&o.soakFor, "for", 5*time.Minute, "how long it does")
	work := flag.String("work", "", "be the worker at this address, and nothing else")
	flag.Parse()
	var stop context.CancelFunc
	contextOfRun, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := func() error { return bench(&o) }
	if *work != "" {
		run = func() error { return beWorker(*work) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "httpbench:", err)
		os.Exit(1)
	}
}

func beWorker(addr string) error {
	runtime.GOMAXPROCS(4) // one is the pacer's for ever, whatever the cores
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(contextOfRun, func() { _ = l.Close() })
	if err := work(l); contextOfRun.Err() == nil {
		return err
	}
	return nil
}

func bench(o *options) error {
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("servers and clients need a core each, and there is but one")
	}
	runtime.LockOSThread() // children end with the thread that made them
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := alone(o.generator); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	worker := fmt.Sprintf("127.0.0.1:%d", workerPort)
	cmd := exec.Command(self, "-work", worker)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	machine.DieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	o.workerPID = cmd.Process.Pid
	all, err := o.start(dir, worker)
	defer func() {
		for _, s := range all {
			s.stop()
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

// start starts what there is and waits until all of it answers.
func (o *options) start(dir, worker string) (all []*system, err error) {
	list := append(ours(o.spillway, ""), theirs(o.spillway)...)
	if o.before != "" {
		list = append(list, ours(o.before, before)...)
	}
	for i, s := range list {
		if !slices.Contains(strings.Split(o.only, ","), strings.TrimSuffix(s.label, before)) {
			continue
		}
		if err := s.find(); err != nil {
			if s.debian == "" {
				return all, err
			}
			fmt.Printf("without %s: %v\n", s.label, err)
			continue
		}
		s.port, s.worker, s.dir = basePort+portsEach*i, worker, filepath.Join(dir, s.label)
		all = append(all, s)
		if err := s.start(o.cores); err != nil {
			return all, fmt.Errorf("starting %s: %w", s.label, err)
		}
	}
	return all, contextOfRun.Err()
}
