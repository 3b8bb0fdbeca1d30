package live

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
)

// eventQueue merges the events of all observers.
type eventQueue struct {
	started time.Time

	mu     sync.Mutex
	events []drill.Event
	read   int // events that the controller has read
}

func newEventQueue(started time.Time) *eventQueue { return &eventQueue{started: started} }

// since is the time of a moment from the start of the run.
func (q *eventQueue) since(at time.Time) time.Duration { return max(at.Sub(q.started), 0) }

// add adds an event that happens now, unless it has a time.
func (q *eventQueue) add(list ...drill.Event) {
	now := q.since(time.Now())
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range list {
		if e.At == 0 {
			e.At = now
		}
		q.events = append(q.events, e)
	}
}

// takeNew returns the events since the last call.
func (q *eventQueue) takeNew() []drill.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := append([]drill.Event(nil), q.events[q.read:]...)
	q.read = len(q.events)
	return out
}

func (q *eventQueue) all() []drill.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]drill.Event(nil), q.events...)
}
