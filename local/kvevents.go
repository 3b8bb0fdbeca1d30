package local

import (
	"context"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine/kvevents"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
	"github.com/spillway-lb/spillway/local/sched"
)

const (
	// maxBlocksPerLock bounds the blocks that are recorded under one hold of the scheduler's lock.
	maxBlocksPerLock = 512
)

// followKVEvents follows a worker's cache events until ctx ends.
func (o *workerWatcher) followKVEvents(ctx context.Context, w *zoneWorker) {
	d := &net.Dialer{
		Timeout: 5 * time.Second, Control: checkWorkerAddress,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	dial := d.DialContext
	if o.cfg.Network != nil {
		dial = o.cfg.Network.DialContext
	}
	log := o.log.With(telemetry.KeyWorker, w.declared.Name)
	for rank, address := range w.declared.KVEvents {
		cfg := kvevents.Config{EventsURL: address, Dial: dial, Log: log}
		if len(w.declared.KVReplay) > rank {
			cfg.ReplayURL = w.declared.KVReplay[rank]
		}
		o.wg.Go(func() {
			kvevents.FollowEvents(ctx, cfg, &kvEventSink{scheduler: o.scheduler, worker: w.Worker, rank: rank, group: anyCacheGroup})
		})
	}
}

// anyCacheGroup means that no cache group has been chosen yet.
const anyCacheGroup = -2

// kvEventSink applies the events of one stream to the scheduler's state.
type kvEventSink struct {
	scheduler *zoneScheduler
	worker    *sched.Worker
	rank      int
	group     int // for engines with several caches, the first group that stores whole prefixes
}

// OnBatch records one batch in pieces, so that a long one does not delay requests.
func (e *kvEventSink) OnBatch(b *kvevents.EventBatch) {
	e.addCount(sched.CountIgnored, b.Ignored)
	for i := range b.Events {
		ev := b.Events[i]
		if ev.Kind != kvevents.BlocksCleared {
			if e.group == anyCacheGroup && ev.Kind == kvevents.BlocksStored {
				e.group = ev.Group
			}
			if e.group != ev.Group {
				e.addCount(sched.CountIgnored, 1)
				continue
			}
		}
		for first := true; first || len(ev.Hashes) > 0; first = false {
			rest := ev.Hashes
			ev.Hashes = rest[:min(len(rest), maxBlocksPerLock)]
			e.recordEvent(&ev, first)
			if rest = rest[len(ev.Hashes):]; len(rest) > 0 {
				ev.Parent, ev.HasParent = ev.Hashes[len(ev.Hashes)-1], true
			}
			ev.Hashes = rest
		}
	}
}

// recordEvent records a piece of one event; first marks the first piece.
func (e *kvEventSink) recordEvent(ev *kvevents.CacheEvent, first bool) {
	now := time.Now()
	e.scheduler.update(func(s *sched.Scheduler) {
		switch ev.Kind {
		case kvevents.BlocksStored:
			s.Cache.RecordStored(e.worker, &kvmirror.StoredBlocks{Rank: e.rank, Hashes: ev.Hashes, Parent: ev.Parent, HasParent: ev.HasParent, BlockTokens: ev.BlockTokens}, first, now)
		case kvevents.BlocksRemoved:
			s.Cache.RecordRemoved(e.worker, e.rank, ev.Hashes, first, now)
		case kvevents.BlocksCleared:
			s.Cache.RecordCleared(e.worker, e.rank, first, now)
		}
	})
}

// OnState records that the stream is in order or lost.
func (e *kvEventSink) OnState(state kvevents.StreamState) {
	now := time.Now()
	e.scheduler.update(func(s *sched.Scheduler) {
		s.Cache.RecordStreamState(e.worker, e.rank, state == kvevents.StreamInOrder, now)
	})
}

// OnGap records that events are missing.
func (e *kvEventSink) OnGap() {
	e.scheduler.update(func(s *sched.Scheduler) { s.Cache.RecordGap(e.worker) })
}

// OnRestart records that the engine was restarted, so that its cache is empty.
func (e *kvEventSink) OnRestart() {
	now := time.Now()
	e.scheduler.update(func(s *sched.Scheduler) { s.Cache.RecordRestart(e.worker, e.rank, now) })
}

// OnMalformed counts a message that could not be decoded.
func (e *kvEventSink) OnMalformed() { e.addCount(sched.CountMalformed, 1) }

func (e *kvEventSink) addCount(what sched.CacheCount, n int) {
	if n == 0 {
		return
	}
	e.scheduler.update(func(s *sched.Scheduler) { s.Cache.AddCount(e.worker, what, n) })
}
