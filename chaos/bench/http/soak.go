//go:build !windows

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"
)

const (
	// soakEventGapMicros is the time between two events of a stream, in microseconds.
	soakEventGapMicros = 2_000_000
	// soakSampleInterval is the interval of memory measurements.
	soakSampleInterval = 20 * time.Second
	// maxMemoryGrowth bounds the relative growth of memory from the first to the last measurement.
	maxMemoryGrowth = 0.10
	// spareDescriptors are descriptors that a process needs in addition to its streams'.
	spareDescriptors = 400
)

// runSoak holds many streams open through both tiers, and ends them in order.
func runSoak(o *httpBenchOptions, all []*benchSystem, _ string) error {
	for _, s := range all {
		if s.label != "path" {
			continue
		}
		s.killProcesses()
		if err := s.startProcesses(o.cores); err != nil {
			return err
		}
		if err := s.soakSystem(o); err != nil {
			return err
		}
	}
	return nil
}

// possibleStreams is how many streams a process can relay, each with a connection on both sides.
func possibleStreams(wanted int) int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return wanted
	}
	n := min(wanted, (int(limit.Cur)-spareDescriptors)/2)
	if n < wanted {
		fmt.Printf("%d streams are not possible: a process may have %d descriptors here, and a relayed stream takes two; %d it is\n", wanted, limit.Cur, n)
	}
	return n
}

func (s *benchSystem) soakSystem(o *httpBenchOptions) error {
	n := possibleStreams(o.soakStreams)
	files := make([]int, len(s.hops))
	for i, h := range s.hops {
		files[i] = countOpenFiles(h.pids[0])
	}
	l := newBenchLoad(s)
	defer l.stopAll()
	began := time.Now()
	l.startStreams(n, fmt.Sprintf("n=0 gap=%d", soakEventGapMicros))
	for l.opened.Load() < int64(n) {
		if l.failed.Load() > 0 || time.Since(began) > 2*time.Minute {
			return fmt.Errorf("%d of %d streams have begun, %d have failed: %v", l.opened.Load(), n, l.failed.Load(), l.failureReasons())
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Printf("%d streams open after %s, an event every %ds each, for %s\n", n, time.Since(began).Round(time.Second), soakEventGapMicros/1_000_000, o.soakFor)
	first, last, err := s.watchMemory(l, n, o.soakFor)
	if err != nil {
		return err
	}
	var faults []error
	if l.failed.Load() > 0 {
		faults = append(faults, fmt.Errorf("%d streams broke off: %w", l.failed.Load(), l.failureReasons()))
	}
	for i, h := range s.hops {
		if grown := float64(last[i])/float64(first[i]) - 1; grown > maxMemoryGrowth {
			faults = append(faults, fmt.Errorf("%s has grown by %.0f %%", h.label, 100*grown))
		}
	}
	l.stopAll()
	for i, h := range s.hops {
		faults = append(faults, h.waitForClosedFiles(files[i]+64), h.terminateProcess())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Println("no stream was cut, memory did not grow, every descriptor was closed, and both processes ended in order")
	return nil
}

// watchMemory prints the memory of the processes. The first measurement is when everything has settled.
func (s *benchSystem) watchMemory(l *benchLoad, n int, d time.Duration) (first, last []int64, err error) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "AFTER\tHOP\tMB\tKB PER STREAM\tDESCRIPTORS\tEVENTS\tp50 ms\tp99 ms\tBROKEN")
	for began := time.Now(); time.Since(began) < d; {
		l.durations.clearCounts()
		select {
		case <-time.After(min(soakSampleInterval, d)):
		case <-contextOfRun.Done():
			return nil, nil, contextOfRun.Err()
		}
		last = nil
		for _, h := range s.hops {
			kb, err := h.residentKB()
			if err != nil {
				return nil, nil, err
			}
			last = append(last, kb)
			fmt.Fprintf(out, "%s\t%s\t%d\t%.1f\t%d\t%d\t%.2f\t%.2f\t%d\n", time.Since(began).Round(time.Second), h.label, kb>>10, float64(kb)/float64(n),
				countOpenFiles(h.pids[0]), l.done.Load(), toMillis(l.durations.quantileOf(0.5)), toMillis(l.durations.quantileOf(0.99)), l.failed.Load())
		}
		if first == nil || time.Since(began) < d/5 {
			first = last
		}
		_ = out.Flush()
	}
	return first, last, nil
}

// waitForClosedFiles waits until at most the given number of descriptors are open.
func (h *hopProcess) waitForClosedFiles(most int) error {
	for end := time.Now().Add(30 * time.Second); countOpenFiles(h.pids[0]) > most; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s still has %d descriptors, 30 s after the last stream", h.label, countOpenFiles(h.pids[0]))
		}
	}
	return nil
}

// terminateProcess terminates the process and waits for its end.
func (h *hopProcess) terminateProcess() error {
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := make(chan error, 1)
	cmd := h.cmd
	go func() { ended <- cmd.Wait() }()
	h.cmd = nil
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s ended with %w", h.label, err)
		}
		return nil
	case <-time.After(40 * time.Second):
		_ = cmd.Process.Kill() // it did not end in time
		return fmt.Errorf("%s did not end in 40 s", h.label)
	}
}

func countOpenFiles(pid int) int {
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0
	}
	return len(list)
}
