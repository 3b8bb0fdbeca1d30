package consensus

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// ErrDamaged means that the stored state of a node is inconsistent. A node that started from it could serve a state
// that was never agreed on, so it does not start.
type ErrDamaged struct {
	What string // a snapshot or the log, with its path
	Err  error
}

// Error implements error.
func (e ErrDamaged) Error() string {
	return fmt.Sprintf("%s is damaged: %v: keep a copy of dir. While a majority of the others is up: `spillway members remove` this node, empty its dir, start it with raft.join: true and `spillway members add` it. If no other is left: `spillway recover -c FILE --salvage --yes` goes on with what is whole (deploy/runbooks/damaged-state.md)", e.What, e.Err)
}

// Unwrap returns the cause.
func (e ErrDamaged) Unwrap() error { return e.Err }

const (
	snapshotDir = "snapshots" // raft's name for it
	logFile     = "raft.db"
)

// verifyStorage checks the files in dir before raft opens them. Raft takes the newest snapshot that it can read,
// skips the others, and panics at an unreadable entry.
func verifyStorage(dir string, snaps raft.SnapshotStore, s *store) error {
	bad, base, err := findDamagedSnapshots(dir, snaps)
	if err != nil {
		return err
	}
	for id, why := range bad {
		if errors.As(why, new(ErrNewerFormat)) {
			return why
		}
		return ErrDamaged{What: "snapshot " + filepath.Join(dir, snapshotDir, id), Err: why}
	}
	if at, err := s.findDamagedEntry(base); err != nil {
		return ErrDamaged{What: fmt.Sprintf("the log %s from entry %d", filepath.Join(dir, logFile), at), Err: err}
	}
	return nil
}

// findDamagedSnapshots returns the unusable snapshots and the index of the newest usable one, 0 if there is none.
func findDamagedSnapshots(dir string, snaps raft.SnapshotStore) (bad map[string]error, base uint64, err error) {
	list, err := snaps.List()
	if err != nil {
		return nil, 0, fmt.Errorf("listing snapshots in %s: %w", dir, err)
	}
	bad = map[string]error{}
	for _, meta := range list {
		if err := readSnapshot(snaps, meta.ID); err != nil {
			bad[meta.ID] = err
		} else {
			base = max(base, meta.Index)
		}
	}
	if len(list) >= retainedSnapshots {
		return bad, base, nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, snapshotDir))
	if err != nil {
		return nil, 0, fmt.Errorf("listing snapshots in %s: %w", dir, err)
	}
	for _, e := range entries { // raft does not list what it cannot describe; a .tmp was never finished
		known := slices.ContainsFunc(list, func(m *raft.SnapshotMeta) bool { return m.ID == e.Name() })
		if e.IsDir() && !known && !strings.HasSuffix(e.Name(), ".tmp") {
			bad[e.Name()] = errors.New("its meta.json cannot be read")
		}
	}
	return bad, base, nil
}

func readSnapshot(snaps raft.SnapshotStore, id string) error {
	_, r, err := snaps.Open(id)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := decodeState(r); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

// findDamagedEntry reads the whole log and returns the first unusable entry after a snapshot at base, with the
// reason. The file is mapped into memory: a truncated file faults, and overwritten pages make bbolt panic.
func (s *store) findDamagedEntry(base uint64) (at uint64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := s.LastIndex()
	switch {
	case err != nil:
		return 0, err
	case last == 0:
		return 0, nil
	case last > base && first > base+1:
		return first, fmt.Errorf("it begins there, and the newest snapshot ends at %d", base)
	}
	for at = first; at <= last; at++ {
		var l raft.Log
		if err := s.GetLog(at, &l); err != nil {
			return at, err
		}
		if l.Index != at {
			return at, fmt.Errorf("entry %d is stored at index %d", l.Index, at)
		}
	}
	return 0, nil
}

// salvageStorage renames damaged files to names that begin with "damaged", and cuts the log before its first damaged
// entry. All entries after that one are lost here.
func salvageStorage(dir string, log hcLogger) error {
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Clean(dir), retainedSnapshots, log)
	if err != nil {
		return fmt.Errorf("opening snapshots in %s: %w", dir, err)
	}
	bad, base, err := findDamagedSnapshots(dir, snaps)
	if err != nil {
		return err
	}
	for id, why := range bad {
		if errors.As(why, new(ErrNewerFormat)) {
			return why
		}
		log.logger.Warn("damaged snapshot moved away", "snapshot", id, "error", why)
		if err := os.Rename(filepath.Join(dir, snapshotDir, id), filepath.Join(dir, "damaged-"+id)); err != nil {
			return err
		}
	}
	s, err := openStore(dir)
	var damaged ErrDamaged
	if errors.As(err, &damaged) {
		log.logger.Warn("damaged log put aside", "error", err)
		return os.Rename(filepath.Join(dir, logFile), filepath.Join(dir, "damaged-"+logFile))
	} else if err != nil {
		return err
	}
	at, why := s.findDamagedEntry(base)
	if why == nil {
		return s.Close()
	}
	if at == 0 || at > base+1 && !s.hasEntry(base+1, at) { // no entry before the damage follows the snapshot
		log.logger.Warn("damaged log put aside", "error", why)
		_ = s.Close() // its content is not used again
		return os.Rename(filepath.Join(dir, logFile), filepath.Join(dir, "damaged-"+logFile))
	}
	last, err := s.LastIndex()
	if err == nil {
		log.logger.Warn("log cut before a damaged entry", "entry", at, "lost", last-at+1, "error", why)
		err = s.DeleteRange(at, last)
	}
	return errors.Join(err, s.Close())
}

// hasEntry reports whether entry first is readable, or is the one before which the log is cut anyway.
func (s *store) hasEntry(first, cut uint64) bool {
	var l raft.Log
	return first == cut || s.GetLog(first, &l) == nil
}
