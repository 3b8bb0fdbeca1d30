package sched

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// CacheTracker keeps the prefix index in line with the cache events of the workers that offer them.
type CacheTracker struct {
	*zoneState
	HitScores [2]HitScore // indexed by whether the prefix index was exact
}

// kvEventState is the state of one worker's cache events.
type kvEventState struct {
	streams        []kvStreamState
	exact          bool
	notExactReason string // why exact is false
	counts         [numCacheCounts]float64
	lastEventAt    time.Time
}

// kvStreamState is the state of the stream of one data-parallel rank.
type kvStreamState struct {
	live   bool
	lostAt time.Time
}

// HitScore compares the cached tokens that were predicted with those that engines reported, in tokens.
type HitScore struct{ Over, Under, Prompt float64 }

// CacheCount names a counter of a worker's cache events.
type CacheCount int

// kvStreamGrace is how long a stream of cache events may be lost before the prefix index becomes approximate.
const kvStreamGrace = 5 * time.Second

// The counters: events by kind, and faults of the stream.
const (
	CountStored CacheCount = iota
	CountRemoved
	CountCleared
	CountIgnored
	CountGap
	CountRestart
	CountMalformed
	CountLost
	numCacheCounts
)

// RecordStored applies an event of a worker's cache: blocks were stored. An event may come in pieces, of which the first is
// counted.
func (t *CacheTracker) RecordStored(w *Worker, e *kvmirror.StoredBlocks, first bool, now time.Time) {
	if t.beginCacheEvent(w, CountStored, first, now) {
		t.prefixIndex.ApplyStored(w.ledgerID, e, now)
	}
}

// RecordRemoved applies an event of a worker's cache: blocks were removed.
func (t *CacheTracker) RecordRemoved(w *Worker, rank int, hashes []uint64, first bool, now time.Time) {
	if t.beginCacheEvent(w, CountRemoved, first, now) {
		t.prefixIndex.ApplyRemoved(w.ledgerID, rank, hashes, now)
	}
}

// RecordCleared applies an event of a worker's cache: the cache of one rank is empty.
func (t *CacheTracker) RecordCleared(w *Worker, rank int, first bool, now time.Time) {
	if t.beginCacheEvent(w, CountCleared, first, now) {
		t.clearCache(w, rank, now)
	}
}

// beginCacheEvent counts an event; false when the worker is no longer declared.
func (t *CacheTracker) beginCacheEvent(w *Worker, what CacheCount, first bool, now time.Time) bool {
	if w.removed {
		return false
	}
	w.kvEvents.lastEventAt = now
	t.useExactIndex(w)
	if first {
		w.kvEvents.counts[what]++
	}
	return true
}

// RecordStreamState records that the stream of a rank is in order or lost.
func (t *CacheTracker) RecordStreamState(w *Worker, rank int, inOrder bool, now time.Time) {
	if w.removed {
		return
	}
	st := &w.kvEvents.streams[rank]
	if st.live = inOrder; inOrder {
		t.useExactIndex(w)
		return
	}
	st.lostAt = now
	w.kvEvents.counts[CountLost]++
}

// RecordGap degrades the known cache contents to estimates: the effect of the missing events is unknown.
func (t *CacheTracker) RecordGap(w *Worker) {
	if w.removed {
		return
	}
	w.kvEvents.counts[CountGap]++
	if t.prefixIndex.IsExact(w.ledgerID) {
		t.prefixIndex.DisableExactMode(w.ledgerID)
		t.prefixIndex.EnableExactMode(w.ledgerID)
	}
}

// RecordRestart clears the mirror of the worker's cache.
func (t *CacheTracker) RecordRestart(w *Worker, rank int, now time.Time) {
	if w.removed {
		return
	}
	w.kvEvents.counts[CountRestart]++
	t.clearCache(w, rank, now)
}

// AddCount adds n to a counter of the worker.
func (t *CacheTracker) AddCount(w *Worker, what CacheCount, n int) {
	if n > 0 && !w.removed {
		w.kvEvents.counts[what] += float64(n)
	}
}

// clearCache records that one rank's cache is empty. Prompts in flight to the worker will be cached nevertheless, and
// are inserted again.
func (t *CacheTracker) clearCache(w *Worker, rank int, now time.Time) {
	t.prefixIndex.ApplyCleared(w.ledgerID, rank, now)
	for at := range w.attempts {
		if at.firstByteAt.IsZero() && !at.IsHedge {
			t.prefixIndex.InsertPrompt(w.ledgerID, at.Request.Query.Blocks)
		}
	}
}

// useExactIndex switches to exact mode once events of every rank of the worker arrive.
func (t *CacheTracker) useExactIndex(w *Worker) {
	if w.kvEvents.exact {
		return
	}
	for i := range w.kvEvents.streams {
		if !w.kvEvents.streams[i].live && len(w.kvEvents.streams) > 1 {
			w.kvEvents.notExactReason = fmt.Sprintf("no events from rank %d", i)
			return
		}
	}
	w.kvEvents.exact, w.kvEvents.notExactReason = true, ""
	t.prefixIndex.EnableExactMode(w.ledgerID)
}

// useApproximateIndex switches back to estimates.
func (t *CacheTracker) useApproximateIndex(w *Worker, why string) {
	w.kvEvents.exact, w.kvEvents.notExactReason = false, why
	t.prefixIndex.DisableExactMode(w.ledgerID)
}

// checkKVEvents settles pending matches with a worker's events, and leaves exact mode when a stream is lost or
// silent.
func (t *CacheTracker) checkKVEvents(w *Worker, now time.Time) {
	if !w.kvEvents.exact {
		return
	}
	for i := range w.kvEvents.streams {
		if s := &w.kvEvents.streams[i]; !s.live && !s.lostAt.IsZero() && now.Sub(s.lostAt) > kvStreamGrace {
			t.useApproximateIndex(w, "event stream lost")
			return
		}
	}
	if t.prefixIndex.SettleMatches(w.ledgerID, now) {
		t.useApproximateIndex(w, "no events for recent prompts")
	}
}

// matchPromptToCache matches an answered prompt with the worker's cache events, and scores the prediction of its
// cached tokens.
func (t *CacheTracker) matchPromptToCache(at *Attempt, u openai.TokenUsage, now time.Time) {
	w, q := at.Worker, &at.Request.Query
	if u.Prompt <= 0 || q.LongestPrompt > 0 {
		return
	}
	cached := int64(-1)
	if w.reportsCached {
		cached = int64(u.Cached)
		t.HitScores[at.exactIndex].addSample(float64(at.Choice.KnownTokens), float64(cached), float64(u.Prompt))
	}
	t.prefixIndex.MatchPrompt(w.ledgerID, &kvmirror.AnsweredPrompt{
		Blocks: q.Blocks, PromptBytes: q.PromptBytes, PromptTokens: int64(u.Prompt), CachedTokens: cached, OutputTokens: int64(u.Completion), SentAt: at.SentAt, FirstByteAt: at.firstByteAt,
	}, now)
}

// IndexModeName returns the name of a mode of the prefix index: 0 is approximate, 1 exact.
func IndexModeName(exact int) string { return [...]string{"approximate", "exact"}[exact] }

// CountPrefixBlocks counts the blocks in the prefix index.
func (t *CacheTracker) CountPrefixBlocks() int {
	return t.prefixIndex.Len()
}

func (s *HitScore) addSample(predicted, cached, prompt float64) {
	s.Over += max(0, predicted-cached)
	s.Under += max(0, cached-predicted)
	s.Prompt += prompt
}
