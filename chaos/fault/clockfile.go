package fault

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// clockError is the error of a process's wall clock, in the file that fleet.ClockEnv names. The process itself ends it.
type clockError struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Jump is how far the clock is ahead from Since on. Rate is how much faster it runs than time: 0.001 gains a
	// millisecond each second. Frozen keeps it at Since.
	Jump   time.Duration `json:"jump,omitempty"`
	Rate   float64       `json:"rate,omitempty"`
	Frozen bool          `json:"frozen,omitempty"`
}

// shiftTime returns what the clock shows at now.
func (e *clockError) shiftTime(now time.Time) time.Time {
	switch {
	case e == nil || now.Before(e.Since) || !now.Before(e.Until):
		return now
	case e.Frozen:
		return e.Since
	}
	return now.Add(e.Jump + time.Duration(e.Rate*float64(now.Sub(e.Since))))
}

// clockPoll is how often a process looks for its file.
const clockPoll = 100 * time.Millisecond

// faultyClock is a wall clock with the error of a file.
type faultyClock struct {
	path string

	mu     sync.Mutex
	looked time.Time
	now    *clockError
}

// WallClock returns the wall clock of a process whose environment has fleet.ClockEnv, as the processes of a fleet with
// relays have, and nil for any other: it uses time.Now.
func WallClock() func() time.Time {
	path := os.Getenv(fleet.ClockEnv)
	if path == "" {
		return nil
	}
	return (&faultyClock{path: path}).readTime
}

func (c *faultyClock) readTime() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) >= clockPoll {
		c.looked, c.now = now, readClockError(c.path)
	}
	return c.now.shiftTime(now)
}

// readClockError returns the error in a file, nil if there is no valid one.
func readClockError(path string) *clockError {
	b, err := os.ReadFile(path)
	var e clockError
	if err != nil || json.Unmarshal(b, &e) != nil {
		return nil
	}
	return &e
}
