package global

import (
	"log/slog"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// stateSource is the source of the state that answers are made from.
type stateSource uint8

const (
	agreedState   stateSource = iota // Raft
	backupState                      // the agreed state as of this node's last backup
	specFileState                    // the spec file, which is not agreed through Raft
)

// raftCatchUpTimeout is how long Raft may take, once a leader is known, to reach the index of this node's own backup.
// A healthy node needs milliseconds. If Raft is still behind after that, its log is a different history, such as a
// new cluster over an old folder, and the backup is dropped.
const raftCatchUpTimeout = 3 * time.Second

// stateChooser chooses the state to answer from. It belongs to the snapshotBuilder.
type stateChooser struct {
	backup      *consensus.State // nil: no backup
	backupIndex uint64
	specFile    *consensus.State // nil: no spec file, or an invalid one
	ledSince    time.Time        // since when a leader has been known without interruption
}

// newStateChooser reads the backup and the spec file. An invalid spec file is logged and not used: it must not stop a
// node that has an agreed spec to answer from.
func newStateChooser(b *stateBackup, name string, text []byte, log *slog.Logger) *stateChooser {
	out := &stateChooser{}
	out.backup, out.backupIndex = b.loadState()
	if len(text) == 0 {
		return out
	}
	sp, err := spec.Decode(name, text)
	if err == nil {
		err = checkSteerable(sp)
	}
	if err != nil {
		log.Error("spec file cannot be used", "file", name, telemetry.ErrorAttr(err))
		return out
	}
	// Version 0, and thus SOA serial 0, is never the version of an agreed spec. With version 1, a node that joins with
	// an old or different file would serve other data under the serial of the first agreed spec, and comparing serials
	// would not show that. 0 precedes every serial up to 2^31-1 (RFC 1982), so this node appears behind and never
	// ahead, and the step to the agreed serial is forward. No secondary can get stuck on it, because there are no zone
	// transfers.
	out.specFile = &consensus.State{Spec: spec.Encode(sp)}
	return out
}

// chooseState returns the state to answer from: Raft's state; this node's backup while Raft has not caught up with
// it; the spec file if there is neither; nil if there is nothing. A restarted node without a quorum thus continues
// where it was, and the epochs that it serves never go back.
func (s *stateChooser) chooseState(raft *consensus.State, led bool, now time.Time) (*consensus.State, stateSource) {
	switch {
	case !led:
		s.ledSince = time.Time{}
	case s.ledSince.IsZero():
		s.ledSince = now
	}
	has := raft != nil && raft.SpecVersion > 0
	if has && (s.backup == nil || raft.Index >= s.backupIndex || led && now.Sub(s.ledSince) >= raftCatchUpTimeout) {
		s.backup = nil // Raft has caught up for good
		return raft, agreedState
	}
	switch {
	case s.backup != nil:
		return s.backup, backupState
	case s.specFile != nil:
		return s.specFile, specFileState
	}
	return nil, specFileState
}
