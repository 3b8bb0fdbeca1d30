// Command dnsbench measures the cost of an answer of the global tier's DNS server next to other servers that steer by
// location: the same names, database and queries, each on the same core in turns. It measures CPU time per answered
// query, checks every answer's region, and counts lost queries and the entries that a resolver would have to cache.
// Peers are used if they are installed. The database determines which answers are right.
//
// All servers run from the start and are queried in short turns, so that other load on the machine slows all of them
// alike. Compare ratios, and only within one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// contextOfRun ends when the program is interrupted.
var contextOfRun context.Context

// dnsBenchOptions are the options of a comparison.
type dnsBenchOptions struct {
	spillway, dir string
	networks      int
	rounds        int
	window        time.Duration
	rates         []float64
	peers         []string
	cores         [2]int // of servers and of the generator
}

func main() {
	o := dnsBenchOptions{cores: [2]int{0, 1}}
	flag.StringVar(&o.spillway, "spillway", "bin/spillway", "the binary to measure")
	flag.StringVar(&o.dir, "dir", "bin/dnsbench", "where databases are kept and servers run")
	flag.IntVar(&o.networks, "networks", 1_000_000, "in the database, about")
	flag.IntVar(&o.rounds, "rounds", 10, "turns of each server")
	flag.DurationVar(&o.window, "window", time.Second, "length of a turn")
	rates := flag.String("rates", "0,30000,200000", "queries per second; 0: as many as are answered")
	peers := flag.String("peers", "gdnsd,knot,coredns,coredns-file", "servers to compare with")
	flag.Parse()
	var stop context.CancelFunc
	contextOfRun, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.peers = strings.Split(*peers, ",")
	for text := range strings.SplitSeq(*rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			fmt.Fprintf(os.Stderr, "dnsbench: -rates %q: write numbers with commas between them\n", *rates)
			os.Exit(2)
		}
		o.rates = append(o.rates, rate)
	}
	if err := runBench(&o); err != nil {
		fmt.Fprintln(os.Stderr, "dnsbench:", err)
		os.Exit(1)
	}
}

func runBench(o *dnsBenchOptions) error {
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("servers and generator need a core each, and this machine has one")
	}
	runtime.LockOSThread() // children end with the thread that started them
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	w, err := newGeoDatabase(dir, o.networks)
	if err != nil {
		return fmt.Errorf("making the database: %w", err)
	}
	if err := machine.PinThread(o.cores[1]); err != nil {
		return err
	}
	all, err := o.startServers(dir, w)
	defer func() {
		for _, s := range all {
			s.killProcess()
		}
	}()
	if err != nil {
		return err
	}
	return o.compareServers(all, w)
}

// startServers starts the available servers and waits until all of them answer.
func (o *dnsBenchOptions) startServers(dir string, w *geoDatabase) (all []*benchServer, err error) {
	for i, s := range listServers(o.spillway) {
		if i > 0 && !slices.Contains(o.peers, s.label) {
			continue
		}
		if path := os.Getenv(strings.ToUpper(s.program)); path != "" && i > 0 {
			s.program = path
		}
		if err := s.findProgram(); err != nil {
			if i == 0 {
				return nil, fmt.Errorf("%w; run `make build`", err)
			}
			fmt.Printf("without %s: %v\n", s.label, err)
			continue
		}
		s.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(basePort+i))
		home := filepath.Join(dir, s.label)
		if err := os.RemoveAll(home); err != nil {
			return all, err
		}
		if err := s.startProcess(home, w.path, o.cores[0]); err != nil {
			return all, fmt.Errorf("starting %s: %w", s.label, err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		if err := s.waitReady(w, time.Minute); err != nil {
			return all, fmt.Errorf("waiting for %s: %w", s.label, err)
		}
	}
	select {
	case <-time.After(settleTime):
		return all, nil
	case <-contextOfRun.Done():
		return all, contextOfRun.Err()
	}
}
