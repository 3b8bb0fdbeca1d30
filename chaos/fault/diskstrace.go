package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// straceInjury makes system calls of a running process on the files of its state fail, by attaching strace. Neither the
// process is restarted nor its directory moved, and no root is needed for a process of the same user. A limit such as
// RLIMIT_FSIZE would not do: it bounds each file and not their sum, sends SIGXFSZ and fails with EFBIG, which no disk does.
//
// Every system call of the process stops for the tracer, so that it is several times slower in calls that are not on those
// files too. A file that is created later is not matched by its descriptor; the rename that puts it in place is.
type straceInjury struct {
	files  *fleet.Files
	binary string
	kill   *processKill

	mu      sync.Mutex
	tracers map[string]*tracer // by lease and node
}

// tracer is a running strace.
type tracer struct {
	cmd    *exec.Cmd
	done   chan struct{}
	output bytes.Buffer
}

// injectedCalls is what strace injects for each kind.
func injectedCalls(s Spec) (calls, effect string) {
	in, _ := FindKind(s.Kind)
	const writes = "write,pwrite64,fallocate,ftruncate,rename,renameat,renameat2"
	switch s.Kind {
	case DiskFull:
		return writes, "error=ENOSPC"
	case DiskEIO:
		return "fsync,fdatasync,pwrite64,rename,renameat,renameat2", "error=EIO"
	case DiskSlow:
		d, _ := time.ParseDuration(in.param(s, "delay"))
		return "fsync,fdatasync,pwrite64", fmt.Sprintf("delay_enter=%d", d.Microseconds())
	case ProcessKillAtSync:
		return "fsync,fdatasync", "signal=KILL:when=" + in.param(s, "k")
	}
	return "", ""
}

func (k *straceInjury) findVictims(s Spec) ([]string, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, fmt.Errorf("%s needs strace: %w", s.Kind, err)
	}
	nodes, err := selectStateNodes(k.files, s)
	if err != nil {
		return nil, err
	}
	return nodeIDs(nodes), requireRunning(k.files, nodes)
}

// selectStateNodes returns the nodes of a target that have state on disk.
func selectStateNodes(p *fleet.Files, s Spec) (out []fleet.Node, err error) {
	nodes, err := selectProcesses(p, s, func() (string, error) { return findLeader(p) })
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Role != "worker" {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %s has no state on disk", s.Kind, describeTarget(s))
	}
	return out, nil
}

func (k *straceInjury) apply(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		errs = append(errs, k.attach(ctx, l, id))
	}
	return errors.Join(errs...)
}

// attachTimeout bounds the wait for a tracer.
const attachTimeout = 5 * time.Second

func (k *straceInjury) attach(ctx context.Context, l *lease, id string) error {
	n, _ := k.files.FindNode(id)
	pid := k.files.RunningPID(id)
	if pid == 0 {
		return nil // killed at its k-th write, or by another fault: the lease goes on
	}
	if err := k.detach(ctx, l, id); err != nil { // of an earlier process, or renewed
		return err
	}
	if by := readTracer(pid); by != "0" {
		return fmt.Errorf("process %d of %s is traced by process %s already", pid, id, by)
	}
	calls, effect := injectedCalls(l.Spec)
	args := []string{"-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(pid), "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + effect}
	files, err := listFiles(k.files.StateDir(n))
	if err != nil {
		return err
	}
	for _, f := range files {
		args = append(args, "-P", f)
	}
	name := "strace"
	if limit, err := exec.LookPath("timeout"); err == nil { // ends it even if both agents are killed
		args = append([]string{"-s", "INT", fmt.Sprintf("%.3f", time.Until(l.Until).Seconds()+1), name}, args...)
		name = limit
	}
	t := &tracer{cmd: exec.Command(name, args...), done: make(chan struct{})}
	t.cmd.Stderr = &t.output
	t.cmd.SysProcAttr = ownSession()
	if err := t.cmd.Start(); err != nil {
		return err
	}
	go func() {
		t.cmd.Wait()
		close(t.done)
	}()
	k.mu.Lock()
	k.tracers[l.Spec.ID+" "+id] = t
	k.mu.Unlock()
	if err := k.files.RecordProcess(tracerID(l, id), t.cmd.Process.Pid); err != nil {
		return errors.Join(err, k.detach(ctx, l, id))
	}
	give := time.Now().Add(attachTimeout)
	for readTracer(pid) == "0" {
		select {
		case <-t.done:
			if k.files.RunningPID(id) != pid { // it was killed by what was injected
				return nil
			}
			return fmt.Errorf("strace of %s: %s", id, strings.TrimSpace(t.output.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(give) {
			return fmt.Errorf("strace has not attached to %s within %s", id, attachTimeout)
		}
	}
	return nil
}

// tracerID is the name under which a tracer is recorded.
func tracerID(l *lease, id string) string { return "strace-" + l.Spec.ID + "-" + id }

// detach ends the tracer of a node, whichever process started it. The traced process continues.
func (k *straceInjury) detach(ctx context.Context, l *lease, id string) error {
	k.mu.Lock()
	t := k.tracers[l.Spec.ID+" "+id]
	delete(k.tracers, l.Spec.ID+" "+id)
	k.mu.Unlock()
	pid := k.files.RunningPID(tracerID(l, id))
	if pid == 0 {
		return nil
	}
	if err := terminateProcess(pid); err != nil {
		return err
	}
	gone, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	waitGone(gone, k.files, tracerID(l, id), pid)
	if k.files.RunningPID(tracerID(l, id)) == pid {
		if err := killProcess(pid); err != nil {
			return err
		}
	}
	if t != nil {
		<-t.done
	}
	return nil
}

func (k *straceInjury) clear(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		errs = append(errs, k.detach(ctx, l, id))
	}
	if l.Spec.Kind == ProcessKillAtSync {
		errs = append(errs, k.kill.clear(ctx, l))
	}
	return errors.Join(errs...)
}

func (k *straceInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	var text []string
	injured := 0
	for _, id := range l.Victims {
		pid := k.files.RunningPID(id)
		switch by := readTracer(pid); {
		case pid == 0:
			text = append(text, id+" does not run")
			if l.Spec.Kind == ProcessKillAtSync {
				injured++
			}
		case by != "0":
			text = append(text, fmt.Sprintf("%s is traced by process %s", id, by))
			injured++
		default:
			text = append(text, id+" is not traced")
			if why := findOutage(k.files, id); l.Ended && why != "" {
				text = append(text, why)
				injured++
			}
		}
	}
	evidence := strings.Join(text, ", ")
	if l.Ended {
		return injured > 0, evidence, nil
	}
	return injured == len(l.Victims), evidence, nil
}

// readTracer returns the process that traces another, "0" if none does.
func readTracer(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "0"
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "0"
}

// maxTracedFiles bounds the files that a tracer looks at.
const maxTracedFiles = 200

// listFiles lists the files under a directory.
func listFiles(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && len(out) < maxTracedFiles {
			out = append(out, path)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s has no files", dir)
	}
	return out, err
}
