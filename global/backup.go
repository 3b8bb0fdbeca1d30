package global

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// stateBackup writes the last applied state to a plain file next to the Raft log, so that a node whose Raft log is
// lost still answers. Ticket keys are left out. The zone's signing keys are included, because resolvers reject
// unsigned answers of a signed zone as forged; the file is therefore readable by its owner only.
type stateBackup struct {
	path    string // empty: no backup
	log     *slog.Logger
	pending chan *consensus.State

	currentRTTs  atomic.Pointer[datedRTTs] // RTTs to write with the state; nil: none
	restoredRTTs []snapshot.RegionRTTs     // RTTs that loadState found, with their age
	loadedAt     time.Time                 // when loadState ran
}

// backupFile is the content of the backup file.
type backupFile struct {
	Generation  uint64            `json:"generation,omitempty"`
	Index       uint64            `json:"index"`
	SpecVersion uint64            `json:"spec_version"`
	Spec        string            `json:"spec"`
	PlanEpoch   uint64            `json:"plan_epoch"`
	Plan        json.RawMessage   `json:"plan,omitempty"` // as older releases wrote it, when plans were JSON
	PlanBytes   []byte            `json:"plan_bytes,omitempty"`
	Drains      []consensus.Drain `json:"drains,omitempty"`
	Signing     json.RawMessage   `json:"signing,omitempty"`
	Measured    json.RawMessage   `json:"measured,omitempty"` // a measuredFile; absent from older releases' files
}

func newStateBackup(dir string, log *slog.Logger) *stateBackup {
	b := &stateBackup{log: log, pending: make(chan *consensus.State, 1)}
	if dir != "" {
		b.path = filepath.Join(dir, "last-state.json")
		b.removeTemporaryFiles()
	}
	return b
}

// removeTemporaryFiles deletes the remains of an unfinished write after a crash: they may hold the zone's signing
// keys.
func (b *stateBackup) removeTemporaryFiles() {
	left, err := filepath.Glob(b.path + ".*") // the pattern that replaceFile uses
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		b.log.Warn("temporary files of an unfinished backup cannot be deleted: they may hold the zone's keys: delete "+b.path+".*", telemetry.ErrorAttr(err))
	}
}

// enqueueState queues the newest state for writing. It never blocks.
func (b *stateBackup) enqueueState(st *consensus.State) {
	select {
	case <-b.pending:
	default:
	}
	select {
	case b.pending <- st:
	default:
	}
}

// writeLoop writes queued states until ctx ends.
func (b *stateBackup) writeLoop(ctx context.Context) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-b.pending:
			err := b.writeState(st)
			if err != nil && !failed {
				b.log.Error("backup of the state cannot be written, answers go on", telemetry.ErrorAttr(err))
			}
			failed = err != nil
		}
	}
}

func (b *stateBackup) writeState(st *consensus.State) error {
	if b.path == "" {
		return nil
	}
	signing, err := consensus.EncodeSigning(st.Signing)
	if err != nil {
		return fmt.Errorf("encoding backup: %w", err)
	}
	var measured []byte
	if m := b.currentRTTs.Load(); m != nil {
		if measured, err = m.encodeFile(); err != nil {
			return fmt.Errorf("encoding backup: %w", err)
		}
	}
	body, err := json.Marshal(backupFile{
		Measured:   measured,
		Generation: st.Generation, Index: st.Index, SpecVersion: st.SpecVersion, Spec: string(st.Spec),
		PlanEpoch: st.PlanEpoch, PlanBytes: st.Plan, Drains: st.Drains, Signing: signing,
	})
	if err != nil {
		return fmt.Errorf("encoding backup: %w", err)
	}
	return replaceFile(b.path, body)
}

// replaceFile replaces the file atomically: after a crash it holds the old content or the new, never a part.
func replaceFile(path string, body []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// loadState reads the backup. It returns nil if there is no usable one. index is the Raft index of the state.
func (b *stateBackup) loadState() (st *consensus.State, index uint64) {
	if b.path == "" {
		return nil, 0
	}
	body, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0
	}
	var f backupFile
	if err == nil {
		err = json.Unmarshal(body, &f)
	}
	if err != nil || f.SpecVersion == 0 {
		b.log.Warn("backup of the state cannot be used", telemetry.ErrorAttr(err))
		return nil, 0
	}
	b.loadedAt = time.Now()
	if b.restoredRTTs, err = decodeMeasured(f.Measured, b.loadedAt); err != nil {
		b.log.Warn("measured round trips in the backup cannot be used: clients are sent by distance until gateways report", telemetry.ErrorAttr(err))
	}
	if len(f.PlanBytes) == 0 {
		f.PlanBytes = f.Plan
	}
	signing, err := consensus.DecodeSigning(f.Signing)
	if err != nil {
		b.log.Warn("the zone's keys in the backup cannot be used: answers are unsigned until Raft has them", telemetry.ErrorAttr(err))
	}
	// Index stays 0, so that a gateway that has any agreed policy keeps it.
	return &consensus.State{
		Generation: f.Generation, SpecVersion: f.SpecVersion, Spec: []byte(f.Spec),
		PlanEpoch: f.PlanEpoch, Plan: f.PlanBytes, Drains: f.Drains, Signing: signing,
	}, f.Index
}
