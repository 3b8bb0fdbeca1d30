package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// processPause stops processes with SIGSTOP and continues them with SIGCONT when the fault ends.
type processPause struct{ files *fleet.Files }

func (k *processPause) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
	if err != nil {
		return nil, err
	}
	return nodeIDs(nodes), requireRunning(k.files, nodes)
}

func requireRunning(p *fleet.Files, nodes []fleet.Node) error {
	for _, n := range nodes {
		if p.RunningPID(n.ID()) == 0 {
			return fmt.Errorf("%s does not run: start it before it is injured", n.ID())
		}
	}
	return nil
}

func (k *processPause) apply(_ context.Context, l *lease) error {
	return signalNodes(k.files, l.Victims, pauseProcess)
}

func (k *processPause) clear(_ context.Context, l *lease) error {
	return signalNodes(k.files, l.Victims, continueProcess)
}

// signalNodes sends a signal to the processes that run as the nodes.
func signalNodes(p *fleet.Files, ids []string, send func(pid int) error) error {
	var errs []error
	for _, id := range ids {
		if pid := p.RunningPID(id); pid != 0 {
			errs = append(errs, send(pid))
		}
	}
	return errors.Join(errs...)
}

func (k *processPause) probe(_ context.Context, l *lease) (bool, string, error) {
	var text []string
	stopped := 0
	for _, id := range l.Victims {
		state := readProcessState(k.files.RunningPID(id))
		text = append(text, id+" "+state)
		if state == stateStopped {
			stopped++
		}
	}
	if l.Ended {
		return stopped > 0, strings.Join(text, ", "), nil
	}
	return stopped == len(l.Victims), strings.Join(text, ", "), nil
}

// stateStopped is the state of a process after SIGSTOP.
const stateStopped = "stopped"

// readProcessState returns "stopped", "running" or "gone".
func readProcessState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if pid == 0 || err != nil {
		return "gone"
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) > 0 && (f[0] == "T" || f[0] == "t") {
		return stateStopped
	}
	return "running"
}
