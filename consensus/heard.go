package consensus

import (
	"slices"
	"sync"
	"time"
)

// silentAfter is how long a voter may be quiet, by what nodes tell each other four times a second, before it is named.
const silentAfter = 30 * time.Second

// heard remembers when each member last told something aside.
type heard struct {
	mu    sync.Mutex
	since time.Time // the node's start
	at    map[string]time.Time
}

func newHeard() *heard { return &heard{since: time.Now(), at: map[string]time.Time{}} }

func (h *heard) note(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[id] = time.Now()
}

// keep forgets everybody else, so that names that come and go leave nothing behind.
func (h *heard) keep(members []Member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.at {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
			delete(h.at, id)
		}
	}
}

// quiet is how long ago a member was heard, or else how long this node has run without hearing it.
func (h *heard) quiet(id string, now time.Time) (d time.Duration, heard bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.at[id]; ok {
		return now.Sub(at), true
	}
	return now.Sub(h.since), false
}

// silence is how long a member has been quiet, at most as long as this node runs.
func (h *heard) silence(id string, now time.Time) time.Duration {
	d, _ := h.quiet(id, now)
	return d
}

// Silence is a voter that tells this node nothing.
type Silence struct {
	ID  string
	For time.Duration // by the monotonic clock
}

// Silent are the other voters that this node has not heard of for half a minute; none where no asides are told.
func (n *Node) Silent() (out []Silence) {
	if !n.converses() {
		return nil
	}
	now := time.Now()
	for _, m := range n.Members() {
		if quiet := n.heard.silence(m.ID, now); m.Voter && m.ID != n.id && quiet >= silentAfter {
			out = append(out, Silence{ID: m.ID, For: quiet})
		}
	}
	return out
}
