package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Processes is a fleet of operating-system processes, one for each node, started from the same files.
type Processes struct {
	files  *Files
	binary string

	mu       sync.Mutex
	children map[string]*childProcess // by node ID
}

// childProcess is one node's process.
type childProcess struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been reaped
	err  error         // valid after done
}

// SpawnAll starts one process for each node: `binary ROLE -c FILE`, with its output in DIR/log.
func SpawnAll(p *Files, binary string) (*Processes, error) {
	return SpawnNodes(p, binary, "worker", "local", "regional", "global")
}

// SpawnNodes starts the nodes of some roles, in the order of the fleet's nodes. The caller runs the others.
func SpawnNodes(p *Files, binary string, roles ...string) (*Processes, error) {
	if err := os.MkdirAll(filepath.Join(p.Dir, "log"), 0o755); err != nil {
		return nil, fmt.Errorf("making the log folder: %w", err)
	}
	ps := &Processes{files: p, binary: binary, children: map[string]*childProcess{}}
	for _, n := range p.Nodes {
		if !slices.Contains(roles, n.Role) {
			continue
		}
		if err := ps.StartNode(n); err != nil {
			return nil, errors.Join(err, ps.Stop(context.Background()))
		}
	}
	return ps, nil
}

// LogPath is the path of a node's output.
func (ps *Processes) LogPath(n Node) string {
	return filepath.Join(ps.files.Dir, "log", n.ID()+".log")
}

// StartNode starts or restarts one node's process.
func (ps *Processes) StartNode(n Node) error {
	out, err := os.OpenFile(ps.LogPath(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", n.ID(), err)
	}
	defer out.Close()
	cmd := exec.Command(ps.binary, n.Role, "-c", ps.files.ConfigPath(n))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ownProcessGroup()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s %s: %w", n.Role, n.ID(), err)
	}
	c := &childProcess{cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.children[n.ID()] = c
	return nil
}

// PID is a node's process id, 0 when it is not running.
func (ps *Processes) PID(n Node) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	c := ps.children[n.ID()]
	if c == nil || c.hasExited() {
		return 0
	}
	return c.cmd.Process.Pid
}

// ExitedNodes lists the nodes whose process ended by itself, with its error.
func (ps *Processes) ExitedNodes() map[string]error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := map[string]error{}
	for id, c := range ps.children {
		if c.hasExited() {
			out[id] = c.err
		}
	}
	return out
}

func (c *childProcess) hasExited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Stop terminates every process, tier by tier from the top, and kills those that do not end in time.
func (ps *Processes) Stop(ctx context.Context) error {
	var errs []error
	for _, role := range []string{"global", "regional", "local", "worker"} {
		var wait []*childProcess
		for _, n := range ps.files.NodesByRole(role) {
			ps.mu.Lock()
			c := ps.children[n.ID()]
			delete(ps.children, n.ID())
			ps.mu.Unlock()
			if c != nil && !c.hasExited() {
				errs = append(errs, c.cmd.Process.Signal(syscall.SIGTERM))
				wait = append(wait, c)
			}
		}
		errs = append(errs, waitOrKill(ctx, wait))
	}
	return errors.Join(errs...)
}

// waitOrKill waits for processes that were sent a termination signal.
func waitOrKill(ctx context.Context, children []*childProcess) error {
	limit := time.NewTimer(stopTimeout)
	defer limit.Stop()
	for _, c := range children {
		select {
		case <-c.done:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-c.done
	}
	return nil
}
