package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// stateInjury damages the files of a node's state. A damaged file is read at the next start, so the node is restarted with
// it. When the fault ends, a file that the node has not replaced itself is restored.
type stateInjury struct {
	files *fleet.Files
	cert  *certInjury // restarts nodes
}

func (k *stateInjury) findVictims(s Spec) ([]string, error) {
	nodes, err := selectStateNodes(k.files, s)
	if err != nil {
		return nil, err
	}
	if s.Kind != DiskDeletedDir {
		for _, n := range nodes {
			if _, err := k.findFile(s.Kind, n); err != nil {
				return nil, err
			}
		}
	}
	return nodeIDs(nodes), nil
}

// findFile returns the file that a kind damages.
func (k *stateInjury) findFile(kind Kind, n fleet.Node) (string, error) {
	dir := k.files.StateDir(n)
	if kind == DiskTornPlan {
		name := "directive.json"
		if n.Role == "global" {
			name = "last-state.json"
		}
		at := filepath.Join(dir, name)
		_, err := os.Stat(at)
		return at, err
	}
	all, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if len(all) == 0 {
		return "", fmt.Errorf("%s: %s has no snapshot in %s", kind, n.ID(), dir)
	}
	return slices.MaxFunc(all, func(a, b string) int {
		x, errX := os.Stat(a)
		y, errY := os.Stat(b)
		if errX != nil || errY != nil {
			return strings.Compare(a, b)
		}
		return x.ModTime().Compare(y.ModTime())
	}), nil
}

// Names in the directory of what a fault replaced.
const (
	originalName = "original" // the file as it was
	damagedName  = "damaged"  // the file as it was written
	pathName     = "path"     // where it is
	stateName    = "state"    // a directory that was moved away
)

func (k *stateInjury) apply(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		n, ok := k.files.FindNode(id)
		backup := k.cert.backupDir(l, id)
		if _, err := os.Stat(backup); err == nil || !ok { // renewed, or restored by another process
			continue
		}
		if l.Spec.Kind == DiskDeletedDir {
			errs = append(errs, k.moveState(ctx, l, n, backup))
		} else {
			errs = append(errs, k.damageFile(ctx, l, n, backup))
		}
	}
	return errors.Join(errs...)
}

// moveState moves a node's directory away. Files that are open stay open, as with deleted ones, and lose nothing.
func (k *stateInjury) moveState(ctx context.Context, l *lease, n fleet.Node, backup string) error {
	if err := os.MkdirAll(backup, 0o700); err != nil {
		return err
	}
	if err := os.Rename(k.files.StateDir(n), filepath.Join(backup, stateName)); err != nil {
		return errors.Join(err, os.RemoveAll(backup))
	}
	if k.cert.needsRestart(l.Spec) {
		return k.cert.restartNode(ctx, n.ID())
	}
	return nil
}

// damageFile stops a node, damages its file and starts it.
func (k *stateInjury) damageFile(ctx context.Context, l *lease, n fleet.Node, backup string) error {
	if pid := k.files.RunningPID(n.ID()); pid != 0 {
		if err := killProcess(pid); err != nil {
			return err
		}
		waitGone(ctx, k.files, n.ID(), pid)
	}
	at, err := k.findFile(l.Spec.Kind, n)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	damaged := damageContent(l.Spec.Kind, content)
	if err := os.MkdirAll(backup, 0o700); err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(backup, pathName), []byte(at), 0o600),
		os.WriteFile(filepath.Join(backup, damagedName), damaged, 0o600),
		os.WriteFile(filepath.Join(backup, originalName), content, 0o600),
		os.WriteFile(at, damaged, 0o600),
	)
	return errors.Join(err, startNode(k.files, k.cert.restart.binary, n.ID(), k.cert.log))
}

// damageContent tears a file in its middle, or changes one bit of it.
func damageContent(kind Kind, content []byte) []byte {
	if kind == DiskTornPlan {
		return bytes.Clone(content[:len(content)/2])
	}
	out := bytes.Clone(content)
	if len(out) > 0 {
		out[len(out)/2] ^= 0x10
	}
	return out
}

func (k *stateInjury) clear(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		n, ok := k.files.FindNode(id)
		backup := k.cert.backupDir(l, id)
		if _, err := os.Stat(backup); errors.Is(err, fs.ErrNotExist) || !ok {
			continue
		}
		err := k.restoreState(ctx, n, backup)
		if err == nil {
			err = os.RemoveAll(backup)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restoreState puts back what the fault replaced and the node has not.
func (k *stateInjury) restoreState(ctx context.Context, n fleet.Node, backup string) error {
	state := filepath.Join(backup, stateName)
	path, pathErr := os.ReadFile(filepath.Join(backup, pathName))
	var restore func() error
	if _, err := os.Stat(state); err == nil {
		restore = func() error {
			return errors.Join(os.RemoveAll(k.files.StateDir(n)), os.Rename(state, k.files.StateDir(n)))
		}
	} else if pathErr == nil && isUnreplaced(string(path), backup) {
		restore = func() error { return copyFile(filepath.Join(backup, originalName), string(path)) }
	}
	if restore == nil {
		return startNode(k.files, k.cert.restart.binary, n.ID(), k.cert.log)
	}
	if pid := k.files.RunningPID(n.ID()); pid != 0 {
		if err := killProcess(pid); err != nil {
			return err
		}
		waitGone(ctx, k.files, n.ID(), pid)
	}
	if err := restore(); err != nil {
		return err
	}
	return startNode(k.files, k.cert.restart.binary, n.ID(), k.cert.log)
}

// isUnreplaced reports whether a file is as the fault left it.
func isUnreplaced(path, backup string) bool {
	now, err := os.ReadFile(path)
	damaged, damagedErr := os.ReadFile(filepath.Join(backup, damagedName))
	return err == nil && damagedErr == nil && bytes.Equal(now, damaged)
}

func (k *stateInjury) probe(_ context.Context, l *lease) (bool, string, error) {
	var text []string
	injured := 0
	for _, id := range l.Victims {
		backup := k.cert.backupDir(l, id)
		_, err := os.Stat(backup)
		why := findOutage(k.files, id)
		switch path, pathErr := os.ReadFile(filepath.Join(backup, pathName)); {
		case err != nil:
			text = append(text, id+" has its own files")
		case pathErr == nil && !isUnreplaced(string(path), backup):
			text = append(text, fmt.Sprintf("%s has replaced or removed %s itself", id, filepath.Base(string(path))))
		default:
			text = append(text, id+" has damaged state")
		}
		if why != "" {
			text = append(text, why)
		}
		if err == nil || l.Ended && why != "" {
			injured++
		}
	}
	evidence := strings.Join(text, ", ")
	if l.Ended {
		return injured > 0, evidence, nil
	}
	return injured == len(l.Victims), evidence, nil
}
