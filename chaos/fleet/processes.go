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

// Processes is a planet of operating-system processes, one for each node, started from the same files.
type Processes struct {
	planet *Planet
	binary string

	mu       sync.Mutex
	children map[string]*child // by node ID
}

// child is one node's process.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been reaped
	err  error         // valid after done
}

// Spawn starts one process for each node: `binary ROLE -c FILE`, with its output in DIR/log.
func Spawn(p *Planet, binary string) (*Processes, error) {
	return SpawnNodes(p, binary, "worker", "local", "regional", "global")
}

// SpawnNodes starts the nodes of some roles, in the order of the planet's nodes. The caller runs the others.
func SpawnNodes(p *Planet, binary string, roles ...string) (*Processes, error) {
	if err := os.MkdirAll(filepath.Join(p.Dir, "log"), 0o755); err != nil {
		return nil, fmt.Errorf("making the log folder: %w", err)
	}
	ps := &Processes{planet: p, binary: binary, children: map[string]*child{}}
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

// Log is the path of a node's output.
func (ps *Processes) Log(n Node) string { return filepath.Join(ps.planet.Dir, "log", n.ID()+".log") }

// StartNode starts one node's process, for the first time or again.
func (ps *Processes) StartNode(n Node) error {
	out, err := os.OpenFile(ps.Log(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", n.ID(), err)
	}
	defer out.Close()
	cmd := exec.Command(ps.binary, n.Role, "-c", ps.planet.Config(n))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s %s: %w", n.Role, n.ID(), err)
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.children[n.ID()] = c
	return nil
}

// PID is a node's process id, 0 when it does not run.
func (ps *Processes) PID(n Node) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	c := ps.children[n.ID()]
	if c == nil || c.exited() {
		return 0
	}
	return c.cmd.Process.Pid
}

// Exited lists the nodes whose process has ended by itself, with what it ended with.
func (ps *Processes) Exited() map[string]error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := map[string]error{}
	for id, c := range ps.children {
		if c.exited() {
			out[id] = c.err
		}
	}
	return out
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Stop asks every process to end, tier by tier from the top, and kills what has not ended in time.
func (ps *Processes) Stop(ctx context.Context) error {
	var errs []error
	for _, role := range []string{"global", "regional", "local", "worker"} {
		var wait []*child
		for _, n := range ps.planet.Of(role) {
			ps.mu.Lock()
			c := ps.children[n.ID()]
			delete(ps.children, n.ID())
			ps.mu.Unlock()
			if c != nil && !c.exited() {
				errs = append(errs, c.cmd.Process.Signal(syscall.SIGTERM))
				wait = append(wait, c)
			}
		}
		errs = append(errs, reap(ctx, wait))
	}
	return errors.Join(errs...)
}

// reap waits for processes that were asked to end.
func reap(ctx context.Context, children []*child) error {
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
