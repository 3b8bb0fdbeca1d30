package fleet

import (
	"context"
	"errors"
	"os"
	"os/exec"
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

// SpawnAll starts one process for each node: `binary ROLE -c FILE`, with its output in DIR/log. For a fleet with relays
// it starts `binary fault relay DIR` and `binary fault agent DIR` first.
func SpawnAll(p *Files, binary string) (*Processes, error) {
	return SpawnNodes(p, binary, "worker", "local", "regional", "global")
}

// SpawnNodes starts the nodes of some roles, in the order of the fleet's nodes. The caller runs the others.
func SpawnNodes(p *Files, binary string, roles ...string) (*Processes, error) {
	ps := &Processes{files: p, binary: binary, children: map[string]*childProcess{}}
	if err := ps.startHolders(); err != nil {
		return nil, errors.Join(err, ps.Stop(context.Background()))
	}
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
func (ps *Processes) LogPath(n Node) string { return ps.files.LogPath(n.ID()) }

// StartNode starts or restarts one node's process.
func (ps *Processes) StartNode(n Node) error {
	cmd, err := ps.files.StartProcess(n, ps.binary)
	if err != nil {
		return err
	}
	ps.addChild(n.ID(), cmd)
	return nil
}

func (ps *Processes) addChild(id string, cmd *exec.Cmd) {
	c := &childProcess{cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.children[id] = c
}

// startHolders starts the relay and the fault agent of a fleet with relays. They find the fleet by its directory.
func (ps *Processes) startHolders() error {
	if !ps.files.Layout.Relays {
		return nil
	}
	for id, verb := range map[string]string{relayID: "relay", agentID: "agent"} {
		cmd, err := ps.files.startRecorded(id, ps.binary, "fault", verb, ps.files.Dir)
		if err != nil {
			return err
		}
		ps.addChild(id, cmd)
	}
	return nil
}

// PID is a node's process id, 0 when it is not running. The fault agent may have restarted it.
func (ps *Processes) PID(n Node) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	c := ps.children[n.ID()]
	if c == nil || c.hasExited() {
		return ps.files.RunningPID(n.ID())
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

// Stop terminates every process, tier by tier from the top, and kills those that do not end in time. The fault agent,
// which clears its faults, ends before the nodes, and the relay after them.
func (ps *Processes) Stop(ctx context.Context) error {
	errs := []error{ps.stopProcess(ctx, agentID)}
	for _, role := range []string{"global", "regional", "local", "worker"} {
		var wait []*childProcess
		for _, n := range ps.files.NodesByRole(role) {
			ps.mu.Lock()
			c := ps.children[n.ID()]
			delete(ps.children, n.ID())
			ps.mu.Unlock()
			switch {
			case c == nil:
			case c.hasExited():
				errs = append(errs, ps.stopByRecord(ctx, n.ID()))
			default:
				errs = append(errs, c.cmd.Process.Signal(syscall.SIGTERM))
				wait = append(wait, c)
			}
		}
		errs = append(errs, waitOrKill(ctx, wait))
	}
	return errors.Join(append(errs, ps.stopProcess(ctx, relayID))...)
}

// stopProcess ends one of the fleet's own processes.
func (ps *Processes) stopProcess(ctx context.Context, id string) error {
	ps.mu.Lock()
	c := ps.children[id]
	delete(ps.children, id)
	ps.mu.Unlock()
	if c == nil {
		return nil
	}
	err := ps.stopByRecord(ctx, id)
	<-c.done // it has ended, or was killed earlier and replaced
	return err
}

// stopByRecord ends the process that runs as a node and that another process has started.
func (ps *Processes) stopByRecord(ctx context.Context, id string) error {
	pid := ps.files.RunningPID(id)
	if pid == 0 {
		return nil
	}
	err := terminateProcess(pid)
	limit := time.Now().Add(stopTimeout)
	for ps.files.RunningPID(id) == pid {
		if time.Now().After(limit) || ctx.Err() != nil {
			return errors.Join(err, killProcess(pid))
		}
		time.Sleep(stopPoll)
	}
	return err
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
