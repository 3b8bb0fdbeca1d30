package fault

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// Roles of the processes that hold leases; also the verbs of `spillway fault`.
const (
	RelayRole = "relay"
	AgentRole = "agent"
)

// controlSocket is where the process of a role listens: in the folder of sockets, because the path of a fleet's directory
// may be too long for one.
func controlSocket(p *fleet.Files, role string) string {
	h := fnv.New32a()
	h.Write([]byte(p.Dir))
	return filepath.Join(admin.RuntimeDir(), fmt.Sprintf("fault-%s-%08x.sock", role, h.Sum32()))
}

// Hold runs the process of a role until ctx is done: `spillway fault relay|agent DIR`. While another process has the role,
// it waits to replace it. It starts a second process of itself that waits in the same way, so that the leases are held
// without a gap of more than a moment when one of the two is killed.
func Hold(ctx context.Context, role, fleetDir string, log *slog.Logger) error {
	p, err := fleet.ReadFiles(fleetDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(faultDir(p), 0o700); err != nil {
		return err
	}
	lock, err := lockFile(ctx, filepath.Join(faultDir(p), role+".lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	standby, started := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(standby)
		keepStandby(ctx, p, role, log, sync.OnceFunc(func() { close(started) }))
	}()
	<-started // from here on this process may be killed
	if err := p.RecordProcess("fault-"+role, os.Getpid()); err != nil {
		return err
	}
	go func() {
		watchFleet(ctx, p)
		cancel()
	}()
	err = runRole(ctx, p, role, log)
	cancel()
	<-standby // before the lock is released, or it would take over
	return err
}

func runRole(ctx context.Context, p *fleet.Files, role string, log *slog.Logger) error {
	switch role {
	case RelayRole:
		r, err := openRelay(ctx, p, log)
		if err != nil {
			return err
		}
		return r.run(ctx, controlSocket(p, role))
	case AgentRole:
		a, err := openAgent(ctx, p, log)
		if err != nil {
			return err
		}
		return a.run(ctx, controlSocket(p, role))
	}
	return fmt.Errorf("no process has the role %q: use %s or %s", role, RelayRole, AgentRole)
}

// standbyEnv marks a process that waits to replace another.
const standbyEnv = "SPILLWAY_FAULT_STANDBY"

// standbyRestart is the time between two starts of a standby process.
const standbyRestart = time.Second

// keepStandby keeps a second process of this one waiting until ctx is done, and then ends it. It calls started once the
// first one runs, or cannot be started.
func keepStandby(ctx context.Context, p *fleet.Files, role string, log *slog.Logger, started func()) {
	defer started()
	for ctx.Err() == nil {
		out, err := os.OpenFile(p.LogPath("fault-"+role), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			log.Error("the log of the standby process cannot be opened", "error", err)
			return
		}
		binary, err := findBinary()
		if err != nil {
			log.Error("finding this binary", "error", err)
			return
		}
		cmd := exec.CommandContext(ctx, binary, "fault", role, p.Dir)
		cmd.Env = append(os.Environ(), standbyEnv+"=1")
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = ownSession()
		cmd.Cancel = func() error { return cmd.Process.Kill() } // it holds nothing
		err = cmd.Start()
		out.Close()
		started()
		if err == nil {
			err = cmd.Wait()
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("the standby process ended", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(standbyRestart):
		}
	}
}

const (
	watchInterval = 2 * time.Second
	// orphanLimit is how long a relay or an agent runs without any process of its fleet.
	orphanLimit = 90 * time.Second
)

// watchFleet returns when the fleet's directory is gone or none of its processes has run for orphanLimit, so that nothing
// is left of a fleet whose starter was killed.
func watchFleet(ctx context.Context, p *fleet.Files) {
	alive := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchInterval):
		}
		if _, found, err := fleet.ReadLayout(p.Dir); err == nil && !found {
			return
		}
		for _, n := range p.Nodes {
			if p.RunningPID(n.ID()) != 0 {
				alive = time.Now()
				break
			}
		}
		if time.Since(alive) > orphanLimit {
			return
		}
	}
}

// errNoLock is returned while another process has the lock.
var errNoLock = errors.New("another process has the lock")

// lockPoll is how often a waiting process looks for the lock: the longest time that leases are without a holder.
const lockPoll = 50 * time.Millisecond

// lockFile waits for a lock that the system releases when its process ends in any way.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := tryLock(f)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, errNoLock) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
		if _, err := os.Stat(path); err != nil { // the fleet is gone
			f.Close()
			return nil, fmt.Errorf("the fleet's directory is gone: %w", err)
		}
	}
}
