package consensus

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

// diskRetryInterval is the time between two tries of a write that raft must complete.
const diskRetryInterval = 250 * time.Millisecond

// raftDisk wraps raft's writes to the file: it times them, and keeps a full or failing disk from ending the process.
type raftDisk struct {
	log          *slog.Logger
	stopped      <-chan struct{}              // closed when the node stops
	raftRunning  atomic.Bool                  // raft is running
	observe      func(took time.Duration)     // called for each write that reached the disk
	testFault    atomic.Pointer[func() error] // injected by tests into each write
	failedWrites atomic.Uint64                // number of failed writes
	lastFailed   atomic.Bool                  // the last write failed
}

// tryWrite makes one try. Raft handles an error here: a leader steps down, a follower refuses the entries.
func (d *raftDisk) tryWrite(f func() error) error {
	err := error(nil)
	if fault := d.testFault.Load(); fault != nil {
		err = (*fault)()
	}
	begun := time.Now()
	if err == nil {
		err = f()
	}
	d.lastFailed.Store(err != nil)
	if err != nil {
		d.failedWrites.Add(1)
		return err
	}
	if d.observe != nil {
		d.observe(time.Since(begun))
	}
	return nil
}

// writeUntilDone tries until the write succeeds. It serves the term and the vote: raft panics when it cannot store
// them, and continuing without them would be unsafe. Meanwhile this node takes no part in Raft and still answers DNS.
// When the node stops first, raft's loop ends here.
func (d *raftDisk) writeUntilDone(f func() error) error {
	for logged := false; ; {
		err := d.tryWrite(f)
		if err == nil || !d.raftRunning.Load() {
			return err
		}
		if !logged {
			d.log.Error("Raft term or vote cannot be stored: this node takes no part in Raft until a write succeeds: free the disk, or stop the node and replace it", "error", err)
			logged = true
		}
		if !d.waitRetry() {
			runtime.Goexit()
		}
	}
}

// waitRetry returns false when the node stops.
func (d *raftDisk) waitRetry() bool {
	t := time.NewTimer(diskRetryInterval)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.stopped:
		return false
	}
}

// checkWritable makes the first write of a start, so that a full or failing disk is reported as such.
func (s *store) checkWritable() error {
	if err := s.disk.tryWrite(func() error { return s.BoltStore.SetUint64([]byte("SpillwayStarted"), uint64(time.Now().Unix())) }); err != nil {
		return fmt.Errorf("writing to the log: %w: free or repair the disk, then start again", err)
	}
	return nil
}
