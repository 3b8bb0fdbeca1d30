package http1

import (
	"sync"
	"time"
)

// lazyDeadline is the deadline of one direction of a connection. The kernel deadline is set only when an
// operation may block: setting it costs a timer, and most requests never block.
type lazyDeadline struct {
	mu      sync.Mutex
	wanted  time.Time // zero: no deadline
	applied time.Time
	inIO    bool // an operation may be blocking
}

// setTimeout bounds later operations; d of 0 or less means no bound. A deadline close to the current one costs
// nothing.
func (u *lazyDeadline) setTimeout(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch now := time.Now(); {
	case d <= 0:
		u.wanted = time.Time{}
	case u.applied.After(now.Add(d*3/4)) && !u.applied.After(now.Add(d)):
		u.wanted = u.applied
	default:
		u.wanted = now.Add(d)
	}
}

// setDeadline sets the deadline from now on, also for an operation in progress. set changes the deadline of the
// connection.
func (u *lazyDeadline) setDeadline(t time.Time, set func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wanted = t
	if u.inIO {
		return u.applyDeadline(set)
	}
	return nil
}

func (u *lazyDeadline) applyDeadline(set func(time.Time) error) error {
	if u.wanted.Equal(u.applied) {
		return nil
	}
	u.applied = u.wanted
	return set(u.wanted)
}

// beginIO is called before an operation that may block, endIO after it.
func (u *lazyDeadline) beginIO(set func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.applyDeadline(set)
	u.inIO = true
	return err
}

func (u *lazyDeadline) endIO() {
	u.mu.Lock()
	u.inIO = false
	u.mu.Unlock()
}
