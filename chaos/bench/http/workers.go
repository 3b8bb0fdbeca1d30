//go:build !windows

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

const (
	// idleSettleTime is how long nothing runs before the CPU of an idle instance is measured: it then reads its workers'
	// pages less often.
	idleSettleTime = 8 * time.Second
	idleWindow     = 5 * time.Second
	// maxOfTenWorkers is the maximum CPU of a request among 1,000 workers, as a multiple of that among ten.
	maxOfTenWorkers = 1.1
	mostWorkers     = 1000
	firstZonePort   = basePort + 30*portsPerSystem // after those of all other systems
)

// workerCounts are the zones that the suite workers measures.
var workerCounts = []int{1, 10, 100, mostWorkers}

// manyAddress is the address of one of many workers that one process serves, all of this machine.
func manyAddress(i int) string { return fmt.Sprintf("127.1.%d.%d:%d", i/250, 1+i%250, workerPort) }

// ZoneWorkers are the addresses of a zone's workers.
func (s *benchSystem) ZoneWorkers() []string {
	out := make([]string, s.workerCount)
	for i := range out {
		out[i] = manyAddress(i)
	}
	return out
}

// measureWorkers measures the CPU of a request, and that of an instance on which nothing runs, in zones of 1 to 1,000
// workers, next to HAProxy with one.
func measureWorkers(o *httpBenchOptions, all []*benchSystem, _ string) error {
	stop, err := startWorkerProcess("-addresses", fmt.Sprint(mostWorkers))
	if err != nil {
		return err
	}
	defer stop()
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	var zones []*benchSystem
	defer func() {
		for _, s := range zones {
			s.killProcesses()
		}
	}()
	idle := map[*benchSystem]float64{}
	for i, n := range workerCounts {
		label := fmt.Sprintf("zone of %d", n)
		s := &benchSystem{
			label: label, fileDir: "zone", workerCount: n, port: firstZonePort + portsPerSystem*i, dir: filepath.Join(dir, strings.ReplaceAll(label, " ", "-")),
			hops: []*hopProcess{{label: label, command: []string{o.spillway, "local", "-c", "local.yaml"}}},
		}
		if err := s.findPrograms(); err != nil {
			return err
		}
		zones = append(zones, s)
		if err := s.startProcesses(o.cores); err != nil {
			return err
		}
		if err := s.awaitWorkers(n, time.Minute); err != nil {
			return err
		}
		if idle[s], err = s.idleCPU(); err != nil {
			return err
		}
	}
	measured := slices.Clone(zones)
	for _, s := range all {
		if s.label == "haproxy" {
			measured = append(measured, s)
		}
	}
	list, err := o.runRounds(measured, func(_ *benchSystem, l *benchLoad) error {
		l.startPaced(connectionCount, o.pace)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per request of 1 KB by workers in the zone, %.0f requests/s, %d rounds of %s, machine load %s\n", o.pace, o.rounds, o.window, machine.LoadAverage())
	return printWorkers(list, idle)
}

// printWorkers prints the zones' figures. The second is the zone of ten workers.
func printWorkers(list []*systemFigures, idle map[*benchSystem]float64) error {
	var theirs []float64
	for _, f := range list {
		if f.system.label == "haproxy" {
			theirs = f.sumOfHops()
		}
	}
	ofTen := list[1].sumOfHops()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SYSTEM\tCPU us\tOF TEN WORKERS\tOF HAPROXY\tIDLE, % OF A CORE\tMB\tper s\tp50 ms\tp99 ms\tBAD")
	for _, f := range list {
		kb, err := f.system.hops[0].residentKB()
		if err != nil {
			return err
		}
		cpu := f.sumOfHops()
		ratio, rest := "", ""
		if len(theirs) > 0 {
			ratio = fmt.Sprintf("%.2f", medianOf(ratiosOf(cpu, theirs)))
		}
		if percent, ok := idle[f.system]; ok {
			rest = fmt.Sprintf("%.1f", percent)
		}
		fmt.Fprintf(out, "%s\t%.1f\t%.2f\t%s\t%s\t%d\t%.0f\t%.2f\t%.2f\t%d of %d\n", f.system.label, medianOf(cpu), medianOf(ratiosOf(cpu, ofTen)), ratio, rest, kb>>10,
			medianOf(f.rate), medianOf(f.p50), medianOf(f.p99), f.bad, f.total)
		if f.problem != nil {
			fmt.Fprintf(out, "%s: %v\n", f.system.label, f.problem)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	most := list[len(workerCounts)-1]
	printVerdicts([]string{verdictLine(fmt.Sprintf("a local instance with %d workers", mostWorkers), "one with 10", "request", ratiosOf(most.sumOfHops(), ofTen), maxOfTenWorkers)})
	return nil
}

// startWorkerProcess starts another process of this program that serves as workers until stop is called.
func startWorkerProcess(args ...string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	machine.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}

// awaitWorkers waits until so many workers of a local instance are ready.
func (s *benchSystem) awaitWorkers(n int, within time.Duration) error {
	ready := 0
	for end := time.Now().Add(within); time.Now().Before(end) && contextOfRun.Err() == nil; time.Sleep(200 * time.Millisecond) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.Port(3)))
		if err != nil {
			return err
		}
		page, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		ready = 0
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "spillway_local_worker_state{") && strings.Contains(line, `state="ready"`) {
				ready++
			}
		}
		if ready == n {
			return nil
		}
	}
	return fmt.Errorf("%d of %d workers are ready", ready, n)
}

// idleCPU measures the CPU time of a system on which nothing runs, in percent of a core.
func (s *benchSystem) idleCPU() (float64, error) {
	time.Sleep(idleSettleTime)
	before, err := s.hops[0].cpuTime()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(idleWindow)
	after, err := s.hops[0].cpuTime()
	return 100 * (after - before).Seconds() / time.Since(began).Seconds(), err
}
