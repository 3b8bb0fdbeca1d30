package consensus

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

// diskRetry is the time between two tries of a write that raft cannot do without.
const diskRetry = 250 * time.Millisecond

// disk stands between raft and the file: it times writes, and keeps a full or failing disk from ending the process.
type disk struct {
	log     *slog.Logger
	done    <-chan struct{}              // closed when the node stops
	armed   atomic.Bool                  // raft runs
	observe func(took time.Duration)     // told of each write that reached the disk
	fault   atomic.Pointer[func() error] // what tests have a write meet
	failed  atomic.Uint64                // writes
	failing atomic.Bool                  // the last write failed
}

// write makes one try. Raft takes an error here well: a leader steps down, a follower refuses the entries.
func (d *disk) write(f func() error) error {
	err := error(nil)
	if fault := d.fault.Load(); fault != nil {
		err = (*fault)()
	}
	begun := time.Now()
	if err == nil {
		err = f()
	}
	d.failing.Store(err != nil)
	if err != nil {
		d.failed.Add(1)
		return err
	}
	if d.observe != nil {
		d.observe(time.Since(begun))
	}
	return nil
}

// insist tries until the write is done. It is for the term and the vote: raft panics when it cannot write them down, and
// going on without would be worse. Meanwhile this node takes no part in Raft, and answers DNS as before. When the node
// stops first, raft's loop ends here.
func (d *disk) insist(f func() error) error {
	for told := false; ; {
		err := d.write(f)
		if err == nil || !d.armed.Load() {
			return err
		}
		if !told {
			d.log.Error("term or vote cannot be written down: this node takes no part in Raft until it can: free the disk, or stop the node and replace it", "error", err)
			told = true
		}
		if !d.wait() {
			runtime.Goexit()
		}
	}
}

// wait is false when the node stops.
func (d *disk) wait() bool {
	t := time.NewTimer(diskRetry)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.done:
		return false
	}
}

// checkRoom is the first write of a start, so that a disk that takes none is told as that.
func (s *store) checkRoom() error {
	if err := s.disk.write(func() error { return s.BoltStore.SetUint64([]byte("SpillwayStarted"), uint64(time.Now().Unix())) }); err != nil {
		return fmt.Errorf("writing to the log: %w: free the disk or mend it, then start again", err)
	}
	return nil
}
