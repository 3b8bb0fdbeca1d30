package prefix

import (
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// EnableExactMode starts exact mode for a worker whose cache events are received. A prompt's blocks are then known from
// the events as soon as they are matched (see AnsweredPrompt), and are guesses until then.
func (x *Index) EnableExactMode(worker int32) {
	if worker < 0 || worker >= perfmodel.MaxWorkers {
		return
	}
	x.growWorkers(worker)
	if x.mirrors[worker] == nil {
		x.mirrors[worker] = kvmirror.NewMirror(&mirrorOwner{index: x, worker: worker}, x.mirrorBudget())
		x.trimList(worker)
	}
}

// DisableExactMode ends exact mode. Known blocks become guesses that age like any other.
func (x *Index) DisableExactMode(worker int32) {
	m := x.mirrorOf(worker)
	if m == nil {
		return
	}
	x.mirrors[worker] = nil
	m.ReleaseLinked()
	x.trimList(worker)
}

// mirrorBudget returns the memory of one worker's mirror: half of the worker's part. A quarter is left for linked byte
// blocks and a quarter for guesses.
func (x *Index) mirrorBudget() int {
	return x.maxBlocksPerWorker / 2 * indexBlockBytes(x.setWords)
}

// trimMirror shrinks a mirror to its memory budget, which falls when workers join.
func (x *Index) trimMirror(worker int32, m *kvmirror.Mirror) {
	if !m.SetBudget(x.mirrorBudget()) {
		x.DisableExactMode(worker)
		x.EnableExactMode(worker)
		return
	}
	m.TrimLinked(max(1, x.maxBlocksPerWorker/4))
}

// IsExact reports whether the worker is in exact mode.
func (x *Index) IsExact(worker int32) bool { return x.mirrorOf(worker) != nil }

func (x *Index) mirrorOf(worker int32) *kvmirror.Mirror {
	if worker < 0 || int(worker) >= len(x.mirrors) {
		return nil
	}
	return x.mirrors[worker]
}

// ApplyStored applies an engine's event that blocks were stored.
func (x *Index) ApplyStored(worker int32, s *kvmirror.StoredBlocks, now time.Time) {
	if m := x.mirrorOf(worker); m != nil {
		m.ApplyStored(s, now)
	}
}

// ApplyRemoved applies an engine's event that blocks were removed. Byte blocks linked to a block without another copy
// are dropped too.
func (x *Index) ApplyRemoved(worker int32, rank int, hashes []uint64, now time.Time) {
	if m := x.mirrorOf(worker); m != nil {
		m.ApplyRemoved(rank, hashes, now)
	}
}

// ApplyCleared applies an event that one rank's cache is empty. Guesses of the worker are dropped too. Pending matches
// stay: events are in order, so blocks stored before the clear are gone, independent of the clock time at which the
// prompt was sent.
func (x *Index) ApplyCleared(worker int32, rank int, now time.Time) {
	m := x.mirrorOf(worker)
	if m == nil {
		return
	}
	m.ApplyCleared(rank, now)
	l := &x.lists[worker]
	for l.Len() > 0 {
		x.removeHolder(l.EvictOldest(), worker)
	}
}

// MatchPrompt links an answered prompt to the engine's blocks, now or within MatchGrace.
func (x *Index) MatchPrompt(worker int32, c *kvmirror.AnsweredPrompt, now time.Time) {
	if m := x.mirrorOf(worker); m != nil {
		m.MatchPrompt(c, now)
	}
}

// SettleMatches resolves the pending matches of a worker; call it a few times a second. silent is true when the worker
// sends no more events while its answers report cached tokens.
func (x *Index) SettleMatches(worker int32, now time.Time) (silent bool) {
	m := x.mirrorOf(worker)
	return m != nil && m.SettleMatches(now)
}

// MirrorStats returns the known engine blocks, the byte blocks linked to them, and how many engine blocks were evicted
// for lack of memory.
func (x *Index) MirrorStats(worker int32) (engine, ours int, evicted uint64) {
	m := x.mirrorOf(worker)
	if m == nil {
		return 0, 0, 0
	}
	return m.CountBlocks()
}

// MatchOutcomes returns the number of matches on a worker since its exact mode began, by outcome.
func (x *Index) MatchOutcomes(worker int32) kvmirror.OutcomeCounts {
	if m := x.mirrorOf(worker); m != nil {
		return m.Outcomes()
	}
	return kvmirror.OutcomeCounts{}
}

// mirrorOwner is the part of the index that belongs to one worker in exact mode.
type mirrorOwner struct {
	index  *Index
	worker int32
}

// AddHolder records that the worker holds a block.
func (o *mirrorOwner) AddHolder(hash uint64) { o.index.addHolder(hash, o.worker) }

// RemoveHolder records that the worker no longer holds a block.
func (o *mirrorOwner) RemoveHolder(hash uint64) { o.index.removeHolder(hash, o.worker) }

// RemoveGuess removes a block from the worker's guesses and reports whether it was one.
func (o *mirrorOwner) RemoveGuess(hash uint64) bool {
	return o.index.lists[o.worker].RemoveHash(hash) > 0
}

// AddGuess makes a block that the worker holds the most recent of its guesses.
func (o *mirrorOwner) AddGuess(hash uint64, size int32) {
	if l := &o.index.lists[o.worker]; !l.MoveToFront(hash) {
		l.AddFront(hash, size)
	}
}

// TrimLists shortens the worker's lists to what fits in the memory.
func (o *mirrorOwner) TrimLists() { o.index.trimList(o.worker) }
