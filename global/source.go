package global

import (
	"log/slog"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// origin is where the state that answers are made from comes from.
type origin uint8

const (
	agreedState origin = iota // Raft
	savedState                // what Raft had agreed on when this node last wrote it down
	firstState                // the spec file: nobody has agreed on it
)

// catchUp is how long Raft may take, once a leader is known, to be as far as this node's own backup says it was. A
// healthy node needs milliseconds. Whoever is not there by then is in another history, such as a new group over an old
// folder, and the backup is of no more use.
const catchUp = 3 * time.Second

// source chooses what to answer from. It belongs to the keeper.
type source struct {
	saved      *consensus.State // nil: no backup
	savedIndex uint64
	first      *consensus.State // nil: no spec file, or one that cannot be read
	ledSince   time.Time        // when a leader was first known without a break
}

// newSource reads what there is beside Raft. A spec file with a mistake is reported and not used: it must not keep a
// node down that has an agreed spec to answer from.
func newSource(b *backup, name string, text []byte, log *slog.Logger) *source {
	out := &source{}
	out.saved, out.savedIndex = b.load()
	if len(text) == 0 {
		return out
	}
	sp, err := spec.Decode(name, text)
	if err == nil {
		err = steerable(sp)
	}
	if err != nil {
		log.Error("spec file cannot be used", "file", name, telemetry.Err(err))
		return out
	}
	// Version 0 is what no agreed spec ever has, and the SOA's serial with it. Were it 1, a node that joins with an old
	// file, or whose file differs from the others', would give other data under the serial of the first agreed spec,
	// and whoever compares serials could not tell. 0 comes before every serial up to 2^31-1 (RFC 1982), so this node
	// shows as behind, never as ahead, and the step to what is agreed is one forward; nobody transfers the zone, so no
	// secondary can get stuck on it.
	out.first = &consensus.State{Spec: spec.Encode(sp)}
	return out
}

// choose returns what to answer from: what Raft holds, or this node's own backup while Raft is not as far again as it
// was, or the spec file while there is neither; nil when there is nothing at all. A restarted node without a quorum
// so goes on where it was, and the epochs that it serves never go back.
func (s *source) choose(raft *consensus.State, led bool, now time.Time) (*consensus.State, origin) {
	switch {
	case !led:
		s.ledSince = time.Time{}
	case s.ledSince.IsZero():
		s.ledSince = now
	}
	has := raft != nil && raft.SpecVersion > 0
	if has && (s.saved == nil || raft.Index >= s.savedIndex || led && now.Sub(s.ledSince) >= catchUp) {
		s.saved = nil // Raft has overtaken it for good
		return raft, agreedState
	}
	switch {
	case s.saved != nil:
		return s.saved, savedState
	case s.first != nil:
		return s.first, firstState
	}
	return nil, firstState
}
