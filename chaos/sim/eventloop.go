package sim

import "time"

// eventLoop is virtual time: what is scheduled, and the time of the event in progress.
type eventLoop struct {
	eventHeap
	startTime time.Time
	now       int64 // ns since the start
	failure   error // ends the run after the event in progress
}

func newEventLoop() *eventLoop { return &eventLoop{startTime: time.Unix(1_700_000_000, 0)} }

// timeAt is a time of the run, in ns since its start, as deciders see it.
func (l *eventLoop) timeAt(at int64) time.Time { return l.startTime.Add(time.Duration(at)) }

// currentTime is the time of the event in progress.
func (l *eventLoop) currentTime() time.Time { return l.timeAt(l.now) }
