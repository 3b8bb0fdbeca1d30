package wire

import (
	"sync"
	"time"
)

// due is until when one direction of a connection may take, by which the system is told only when something may wait: to
// tell it costs a timer, and most requests never wait.
type due struct {
	mu   sync.Mutex
	want time.Time // zero: for ever
	told time.Time
	busy bool // something may be waiting
}

// within bounds what is to come; d of 0 or less is no bound. One that is near enough to what was told last costs nothing.
func (u *due) within(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch now := time.Now(); {
	case d <= 0:
		u.want = time.Time{}
	case u.told.After(now.Add(d*3/4)) && !u.told.After(now.Add(d)):
		u.want = u.told
	default:
		u.want = now.Add(d)
	}
}

// by bounds from now on, also what waits already. set tells the system.
func (u *due) by(t time.Time, set func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.want = t
	if u.busy {
		return u.tell(set)
	}
	return nil
}

func (u *due) tell(set func(time.Time) error) error {
	if u.want.Equal(u.told) {
		return nil
	}
	u.told = u.want
	return set(u.want)
}

// begin is called before what may wait, and done after it.
func (u *due) begin(set func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.tell(set)
	u.busy = true
	return err
}

func (u *due) done() {
	u.mu.Lock()
	u.busy = false
	u.mu.Unlock()
}
