package fault

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// processSpot ends workers as a cloud does that takes back a machine: SIGTERM, and SIGKILL after the notice. They are
// started again when the fault ends.
type processSpot struct {
	*processKill

	mu    sync.Mutex
	kills map[string]*time.Timer // by lease
}

func (k *processSpot) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, nil)
	var workers []fleet.Node
	for _, n := range nodes {
		if n.Role == "worker" {
			workers = append(workers, n)
		}
	}
	return nodeIDs(workers), err
}

func (k *processSpot) apply(_ context.Context, l *lease) error {
	in, _ := FindKind(l.Spec.Kind)
	notice, err := time.ParseDuration(in.param(l.Spec, "notice"))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kills[l.Spec.ID] != nil { // renewed
		return nil
	}
	victims := map[string]int{}
	var errs []error
	for _, id := range l.Victims {
		if pid := k.files.RunningPID(id); pid != 0 {
			victims[id] = pid
			errs = append(errs, terminateProcess(pid))
		}
	}
	k.kills[l.Spec.ID] = time.AfterFunc(time.Until(l.Since.Add(notice)), func() {
		for id, pid := range victims {
			if k.files.RunningPID(id) == pid {
				killProcess(pid)
			}
		}
	})
	return errors.Join(errs...)
}

func (k *processSpot) clear(ctx context.Context, l *lease) error {
	k.mu.Lock()
	if t := k.kills[l.Spec.ID]; t != nil {
		t.Stop()
		delete(k.kills, l.Spec.ID)
	}
	k.mu.Unlock()
	for _, id := range l.Victims { // one whose notice has not passed ends now, as the start of another needs its address
		if pid := k.files.RunningPID(id); pid != 0 && l.Ended && findOutage(k.files, id) != "" {
			killProcess(pid)
			waitGone(ctx, k.files, id, pid)
		}
	}
	return k.processKill.clear(ctx, l)
}

// waitGone waits until a process has ended.
func waitGone(ctx context.Context, p *fleet.Files, id string, pid int) {
	for p.RunningPID(id) == pid {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// probe finds the fault in force while the workers do not accept requests.
func (k *processSpot) probe(ctx context.Context, l *lease) (bool, string, error) {
	if l.Ended {
		return k.processKill.probe(ctx, l)
	}
	alive, evidence := 0, ""
	for _, id := range l.Victims {
		why := findOutage(k.files, id)
		if why == "" {
			alive++
			why = id + " still serves"
		}
		if evidence != "" {
			evidence += ", "
		}
		evidence += why
	}
	return alive == 0, evidence, nil
}
