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
	// soakGap is the time between two events of a stream, in microseconds.
	soakGap = 2_000_000
	// soakLook is how often memory is looked at.
	soakLook = 20 * time.Second
	// maxGrowth is by what part memory may grow from the first look to the last.
	maxGrowth = 0.10
	// spareFiles are descriptors that a process needs beside its streams'.
	spareFiles = 400
)

// soak holds many streams open through both tiers, and ends them in order.
func soak(o *options, all []*system, _ string) error {
	for _, s := range all {
		if s.label != "path" {
			continue
		}
		s.stop()
		if err := s.start(o.cores); err != nil {
			return err
		}
		if err := s.soak(o); err != nil {
			return err
		}
	}
	return nil
}

// possible is how many streams a process can relay, each with a connection on both sides.
func possible(wanted int) int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return wanted
	}
	n := min(wanted, (int(limit.Cur)-spareFiles)/2)
	if n < wanted {
		fmt.Printf("%d streams are not possible: a process may have %d descriptors here, and a relayed stream takes two; %d it is\n", wanted, limit.Cur, n)
	}
	return n
}

func (s *system) soak(o *options) error {
	n := possible(o.soaked)
	files := make([]int, len(s.hops))
	for i, h := range s.hops {
		files[i] = openFiles(h.pids[0])
	}
	l := newLoad(s)
	defer l.stop()
	began := time.Now()
	l.streams(n, fmt.Sprintf("n=0 gap=%d", soakGap))
	for l.opened.Load() < int64(n) {
		if l.bad.Load() > 0 || time.Since(began) > 2*time.Minute {
			return fmt.Errorf("%d of %d streams have begun, %d have failed: %v", l.opened.Load(), n, l.bad.Load(), l.reasons())
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Printf("%d streams open after %s, an event every %ds each, for %s\n", n, time.Since(began).Round(time.Second), soakGap/1_000_000, o.soakFor)
	first, last, err := s.watch(l, n, o.soakFor)
	if err != nil {
		return err
	}
	var faults []error
	if l.bad.Load() > 0 {
		faults = append(faults, fmt.Errorf("%d streams broke off: %w", l.bad.Load(), l.reasons()))
	}
	for i, h := range s.hops {
		if grown := float64(last[i])/float64(first[i]) - 1; grown > maxGrowth {
			faults = append(faults, fmt.Errorf("%s has grown by %.0f %%", h.label, 100*grown))
		}
	}
	l.stop()
	for i, h := range s.hops {
		faults = append(faults, h.closes(files[i]+64), h.ends())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Println("no stream broke off, memory stayed, every descriptor was given back, and both ended in order when they were asked to")
	return nil
}

// watch prints what the processes hold. The first look is when everything has settled.
func (s *system) watch(l *load, n int, d time.Duration) (first, last []int64, err error) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "AFTER\tHOP\tMB\tKB PER STREAM\tDESCRIPTORS\tEVENTS\tp50 ms\tp99 ms\tBROKEN")
	for began := time.Now(); time.Since(began) < d; {
		l.took.clear()
		select {
		case <-time.After(min(soakLook, d)):
		case <-contextOfRun.Done():
			return nil, nil, contextOfRun.Err()
		}
		last = nil
		for _, h := range s.hops {
			kb, err := h.resident()
			if err != nil {
				return nil, nil, err
			}
			last = append(last, kb)
			fmt.Fprintf(out, "%s\t%s\t%d\t%.1f\t%d\t%d\t%.2f\t%.2f\t%d\n", time.Since(began).Round(time.Second), h.label, kb>>10, float64(kb)/float64(n),
				openFiles(h.pids[0]), l.done.Load(), millis(l.took.quantile(0.5)), millis(l.took.quantile(0.99)), l.bad.Load())
		}
		if first == nil || time.Since(began) < d/5 {
			first = last
		}
		_ = out.Flush()
	}
	return first, last, nil
}

// closes waits until no more than so many descriptors are open.
func (h *hop) closes(most int) error {
	for end := time.Now().Add(30 * time.Second); openFiles(h.pids[0]) > most; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s still has %d descriptors, 30 s after the last stream", h.label, openFiles(h.pids[0]))
		}
	}
	return nil
}

// ends asks the process to stop, and waits for it.
func (h *hop) ends() error {
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
		_ = cmd.Process.Kill() // it has had its time
		return fmt.Errorf("%s did not end in 40 s", h.label)
	}
}

func openFiles(pid int) int {
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0
	}
	return len(list)
}
