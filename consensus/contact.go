package consensus

import (
	"slices"
	"sync"
	"time"
)

// silentAfter is how long a voter may send no gossip before it is reported as silent. Nodes send gossip four times a
// second.
const silentAfter = 30 * time.Second

// contactTimes keeps when each member last sent gossip.
type contactTimes struct {
	mu          sync.Mutex
	startedAt   time.Time // the node's start
	lastContact map[string]time.Time
}

func newContactTimes() *contactTimes {
	return &contactTimes{startedAt: time.Now(), lastContact: map[string]time.Time{}}
}

func (h *contactTimes) recordContact(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastContact[id] = time.Now()
}

// retainMembers drops all other names, so that names that come and go leave nothing behind.
func (h *contactTimes) retainMembers(members []Member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.lastContact {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
			delete(h.lastContact, id)
		}
	}
}

// sinceContact returns the time since a member's last gossip, or else the time this node has run without any.
func (h *contactTimes) sinceContact(id string, now time.Time) (d time.Duration, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.lastContact[id]; ok {
		return now.Sub(at), true
	}
	return now.Sub(h.startedAt), false
}

// silentFor returns how long a member has been silent, at most the time that this node has run.
func (h *contactTimes) silentFor(id string, now time.Time) time.Duration {
	d, _ := h.sinceContact(id, now)
	return d
}

// SilentVoter is a voter from which this node receives no gossip.
type SilentVoter struct {
	ID        string
	SilentFor time.Duration // by the monotonic clock
}
