package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// Config of a live run.
type Config struct {
	// Dir is the folder of the fleet's files, and Binary the program that its nodes run.
	Dir, Binary string
	Seed        uint64
	Version     string
	// Net is the second byte of the fleet's addresses (fleet.Layout.Net), so that several fleets can run on one machine.
	Net int
	// StopReason returns why the run has to end; empty: it may go on. It is asked every second.
	StopReason func() string
	// OnReady is called when the fleet serves, before the load, with the time between a client and an engine there and back,
	// measured on the idle fleet: the simulator models neither processes nor their timers. nil: not called.
	OnReady func(path time.Duration) error
	// Progress gets lines for people.
	Progress io.Writer
}

// observedKinds are the kinds of events that a live run records.
var observedKinds = []drill.EventKind{
	drill.RunStateChanged, drill.FaultInjected, drill.FaultFailed, drill.FaultCleared, drill.FaultVerified, drill.FaultRemains, drill.RunStopped, drill.MachineLate,
	drill.RequestDue, drill.RequestEnded, drill.PlanApplied, drill.LeaderChanged, drill.TermSeen, drill.RegionState, drill.NodeState, drill.SummaryAge, drill.ProcessUsage,
	drill.DNSAnswered, drill.DNSFailed, drill.ResolverAnswered, drill.SizeReturned, drill.SecretFound, drill.SecretsChecked,
}

// Unsupported is why a drill cannot run live; empty: it can.
func Unsupported(f *drill.DrillFile) string {
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Kind == drill.DrainKind || s.Kind == drill.DNSPartition {
			return fmt.Sprintf("step %d: %s runs in the simulator only so far", i+1, s.Kind)
		}
		if in, ok := fault.FindKind(s.Kind); ok && in.Needs != "" {
			return fmt.Sprintf("step %d: %s needs %s", i+1, s.Kind, in.Needs)
		}
	}
	if f.Load.HoldAnswers > 0 {
		return "clients that hold answers run in the simulator only so far"
	}
	return ""
}

// Run starts the drill's fleet, runs the drill and stops the fleet. The log is complete also for a run that was interrupted; the error is
// of the machinery: a fleet that does not start, or a load that cannot be made.
func Run(ctx context.Context, f *drill.DrillFile, c Config) (*drill.EventLog, error) {
	if why := Unsupported(f); why != "" {
		return nil, fmt.Errorf("drill %s cannot run live: %s", f.Name, why)
	}
	layout := f.Layout()
	layout.Relays, layout.Net = true, c.Net
	files, err := fleet.WriteFiles(c.Dir, layout)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Progress, "starting %d processes in %s\n", len(files.Nodes)+2, files.Dir)
	processes, err := fleet.SpawnAll(files, c.Binary)
	if err != nil {
		return nil, err
	}
	l, err := runOnFleet(ctx, f, c, files)
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return l, errors.Join(err, processes.Stop(stopCtx))
}

// readyTimeout bounds the start of the fleet.
const readyTimeout = 90 * time.Second

func runOnFleet(ctx context.Context, f *drill.DrillFile, c Config, files *fleet.Files) (*drill.EventLog, error) {
	t := newTarget(files)
	readyCtx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := t.awaitReady(readyCtx); err != nil {
		return nil, fmt.Errorf("waiting for the fleet: %w", err)
	}
	injector, err := fault.Open(files.Dir)
	if err != nil {
		return nil, err
	}
	if c.OnReady != nil {
		path, err := t.measurePath(ctx)
		if err != nil {
			return nil, fmt.Errorf("measuring the idle fleet: %w", err)
		}
		if err := c.OnReady(path); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	events := newEventQueue(started)
	clients, err := newClients(f, c.Seed, t, events)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Progress, "the fleet is ready; the drill takes %s\n", f.Load.Duration)
	run := &controller{file: f, config: c, injector: injector, events: events, target: t, machine: drill.NewMachine(f), started: started}
	observeCtx, stopObservers := context.WithCancel(context.WithoutCancel(ctx))
	observers := startObservers(observeCtx, f, t, events)
	loadCtx, stopLoad := context.WithCancel(context.WithoutCancel(ctx))
	load := clients.start(loadCtx)
	run.runSteps(ctx)
	stopLoad()
	<-load
	stopObservers()
	observers.Wait()
	t.checkSecrets(events)
	l := &drill.EventLog{Header: drill.LogHeader{
		Format: drill.LogFormat, Drill: string(drill.FormatFile(f)), Way: drill.WayLive, Seed: c.Seed, Version: c.Version, Observes: observedKinds, Started: started.UTC(),
		Notes: []string{"clients are on this machine: they reach each gateway without the distance that the simulator counts"},
	}, Events: events.all()}
	l.SortEvents()
	return l, nil
}
