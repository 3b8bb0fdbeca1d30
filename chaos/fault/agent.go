package fault

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// agent holds the leases of all faults that are not of links, and injures the fleet's processes and files.
type agent struct {
	files  *fleet.Files
	binary string
	log    *slog.Logger
	place  *place
}

// findBinary returns this program, under the name with which it was started.
func findBinary() (string, error) {
	if filepath.IsAbs(os.Args[0]) {
		return os.Args[0], nil
	}
	return os.Executable()
}

// openAgent restores the leases of an earlier process.
func openAgent(ctx context.Context, p *fleet.Files, log *slog.Logger) (*agent, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	a := &agent{files: p, binary: binary, log: log}
	injuries := a.buildInjuries()
	a.place, err = openPlace(ctx, "agent", leaseFile(filepath.Join(faultDir(p), "agent.json")), func(k Kind) injury { return injuries[k] }, log)
	if a.place != nil {
		a.place.excludes = exclusiveGroups
	}
	return a, err
}

// buildInjuries lists what the agent can do.
func (a *agent) buildInjuries() map[Kind]injury {
	out := map[Kind]injury{}
	kill := &processKill{files: a.files, binary: a.binary, log: a.log}
	for _, k := range []Kind{ProcessKill, WorkerDead, LocalDead, ZoneDead, GatewayDead, RegionDead, LeaderDead, GlobalDead} {
		out[k] = kill
	}
	out[ProcessPause] = &processPause{files: a.files}
	out[ProcessSlow] = newProcessSlow(a.files)
	out[WorkerSpot] = &processSpot{processKill: kill, kills: map[string]*time.Timer{}}
	clock := &clockInjury{files: a.files}
	for _, k := range []Kind{ClockJump, ClockDrift, ClockFreeze} {
		out[k] = clock
	}
	cert := &certInjury{files: a.files, restart: kill, log: a.log}
	for _, k := range []Kind{CertExpired, CertWrongCA, CertWrongRole, CertRotate} {
		out[k] = cert
	}
	disk := &straceInjury{files: a.files, binary: a.binary, kill: kill, tracers: map[string]*tracer{}}
	for _, k := range []Kind{DiskFull, DiskEIO, DiskSlow, ProcessKillAtSync} {
		out[k] = disk
	}
	state := &stateInjury{files: a.files, cert: cert}
	for _, k := range []Kind{DiskDamagedSnapshot, DiskTornPlan, DiskDeletedDir} {
		out[k] = state
	}
	operator := &operatorInjury{files: a.files}
	for _, k := range []Kind{Drain, OperatorNonsense, OperatorTwoAtOnce, OperatorDrainAll, OperatorOldArchive, OperatorRemoveVoter} {
		out[k] = operator
	}
	input := &inputInjury{files: a.files, senders: map[string]*inputSender{}}
	for k := range inputRoles {
		out[k] = input
	}
	worker := &workerInjury{files: a.files}
	for k := range workerModes {
		out[k] = worker
	}
	return out
}

func (a *agent) run(ctx context.Context, socket string) error {
	control, err := serveControl(socket, a.place, nil)
	if err != nil {
		return err
	}
	a.place.run(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	return errors.Join(control.stop(stop), a.place.close(stop))
}

// exclusiveGroups returns the group of kinds of which a victim has at most one fault at a time: two would clear each other.
func exclusiveGroups(k Kind) string {
	switch k {
	case ProcessKill, ProcessPause, ProcessSlow, WorkerDead, LocalDead, ZoneDead, GatewayDead, RegionDead, LeaderDead, GlobalDead, WorkerSpot, ProcessKillAtSync:
		return "process"
	case ClockJump, ClockDrift, ClockFreeze:
		return "clock"
	case CertExpired, CertWrongCA, CertWrongRole, CertRotate:
		return "certificate"
	case DiskFull, DiskEIO, DiskSlow, DiskDamagedSnapshot, DiskTornPlan, DiskDeletedDir:
		return "disk"
	}
	if workerModes[k] != nil {
		return "worker"
	}
	return ""
}
