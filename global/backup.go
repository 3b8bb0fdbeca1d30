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

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// backup writes the last state that answers were made from to a plain file beside Raft's own, so that a node whose Raft
// log is gone still answers. Ticket keys stay out of it; the zone's are in it, for unsigned answers would be taken for
// forged ones, and so nobody else may read it.
type backup struct {
	path string // empty: nothing is kept
	log  *slog.Logger
	next chan *consensus.State
}

// backupFile is the file's content.
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
}

func newBackup(dir string, log *slog.Logger) *backup {
	b := &backup{log: log, next: make(chan *consensus.State, 1)}
	if dir != "" {
		b.path = filepath.Join(dir, "last-state.json")
		b.removeTemporary()
	}
	return b
}

// removeTemporary deletes what a crash left of an unfinished write: it may hold the zone's keys.
func (b *backup) removeTemporary() {
	left, err := filepath.Glob(b.path + ".*") // what replaceFile names them
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		b.log.Warn("temporary files of an unfinished backup cannot be deleted: they may hold the zone's keys: delete "+b.path+".*", telemetry.Err(err))
	}
}

// offer leaves the newest state to be written; it never blocks.
func (b *backup) offer(st *consensus.State) {
	select {
	case <-b.next:
	default:
	}
	select {
	case b.next <- st:
	default:
	}
}

// run writes until ctx ends.
func (b *backup) run(ctx context.Context) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-b.next:
			err := b.write(st)
			if err != nil && !failed {
				b.log.Error("backup of the state cannot be written, answers go on", telemetry.Err(err))
			}
			failed = err != nil
		}
	}
}

func (b *backup) write(st *consensus.State) error {
	if b.path == "" {
		return nil
	}
	signing, err := consensus.EncodeSigning(st.Signing)
	if err != nil {
		return fmt.Errorf("encoding backup: %w", err)
	}
	body, err := json.Marshal(backupFile{
		Generation: st.Generation, Index: st.Index, SpecVersion: st.SpecVersion, Spec: string(st.Spec),
		PlanEpoch: st.PlanEpoch, PlanBytes: st.Plan, Drains: st.Drains, Signing: signing,
	})
	if err != nil {
		return fmt.Errorf("encoding backup: %w", err)
	}
	return replaceFile(b.path, body)
}

// replaceFile makes sure that after a crash there is the old content or the new, never a part.
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

// load reads the file back; nil when there is none, or none that can be used. index is how far Raft had come.
func (b *backup) load() (st *consensus.State, index uint64) {
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
		b.log.Warn("backup of the state cannot be used", telemetry.Err(err))
		return nil, 0
	}
	if len(f.PlanBytes) == 0 {
		f.PlanBytes = f.Plan
	}
	signing, err := consensus.DecodeSigning(f.Signing)
	if err != nil {
		b.log.Warn("the zone's keys in the backup cannot be used: answers are unsigned until Raft has them", telemetry.Err(err))
	}
	// Index stays 0, so that a gateway that holds anything agreed keeps it.
	return &consensus.State{
		Generation: f.Generation, SpecVersion: f.SpecVersion, Spec: []byte(f.Spec),
		PlanEpoch: f.PlanEpoch, Plan: f.PlanBytes, Drains: f.Drains, Signing: signing,
	}, f.Index
}
