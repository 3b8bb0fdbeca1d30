package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// processKill kills processes, and starts them again when the fault ends.
type processKill struct {
	files  *fleet.Files
	binary string
	log    *slog.Logger
}

func (k *processKill) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
	return nodeIDs(nodes), err
}

// apply kills what runs. Renewed, it kills what was started since.
func (k *processKill) apply(_ context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		if pid := k.files.RunningPID(id); pid != 0 {
			errs = append(errs, killProcess(pid))
		}
	}
	return errors.Join(errs...)
}

func (k *processKill) clear(_ context.Context, l *lease) error {
	in, _ := FindKind(l.Spec.Kind)
	if in.param(l.Spec, "restart") == "no" {
		return nil
	}
	var errs []error
	for _, id := range l.Victims {
		errs = append(errs, startNode(k.files, k.binary, id, k.log))
	}
	return errors.Join(errs...)
}

// startNode starts a node's process unless it runs.
func startNode(p *fleet.Files, binary, id string, log *slog.Logger) error {
	n, ok := p.FindNode(id)
	if !ok || p.RunningPID(id) != 0 {
		return nil
	}
	cmd, err := p.StartProcess(n, binary)
	if err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		log.Info("a restarted process has ended", "node", id, "error", err)
	}()
	return nil
}

func (k *processKill) probe(_ context.Context, l *lease) (bool, string, error) {
	var dead, alive []string
	for _, id := range l.Victims {
		if why := findOutage(k.files, id); why != "" {
			dead = append(dead, why)
		} else {
			alive = append(alive, id)
		}
	}
	if in, _ := FindKind(l.Spec.Kind); l.Ended && in.param(l.Spec, "restart") == "no" {
		return false, "not to be started again: " + strings.Join(dead, ", "), nil
	}
	if l.Ended {
		if len(dead) > 0 {
			return true, strings.Join(dead, ", "), nil
		}
		return false, "running and listening: " + strings.Join(alive, ", "), nil
	}
	if len(alive) > 0 {
		return false, "running: " + strings.Join(alive, ", "), nil
	}
	return true, strings.Join(dead, ", "), nil
}

// listenPurposes are the purposes of a node's TCP addresses.
var listenPurposes = []string{"http", "raft", "peer"}

// findOutage says why a node cannot serve: it does not run, or does not listen; "" if it can.
func findOutage(p *fleet.Files, id string) string {
	n, ok := p.FindNode(id)
	if !ok {
		return id + " is no node"
	}
	pid := p.RunningPID(id)
	if pid == 0 {
		return id + " does not run"
	}
	for _, purpose := range listenPurposes {
		if a, ok := n.Addr[purpose]; ok && !isListening(a) {
			return fmt.Sprintf("%s (process %d) does not listen on %s", id, pid, a)
		}
	}
	return ""
}
