package consensus

import (
	"context"
	"slices"
	"sync"
	"time"
)

// memberMonitor measures the other members: their contacts with this node, and how far each has applied the log.
type memberMonitor struct {
	id            string
	hasGossip     bool // silence is measured only by gossip
	members       func() []Member
	applied       *appliedState
	contacts      *contactTimes
	diskFailing   func() bool   // this node's disk
	commitIndex   func() uint64 // the last index known here to be committed
	queryProgress func(ctx context.Context, addr string) (at uint64, failing bool, err error)
}

// KnownMembers is ProbeMembers with only what this node has, without asking any other.
func (m *memberMonitor) KnownMembers() []MemberStatus {
	return m.collectMemberStatuses(context.Background(), func(MemberStatus) bool { return false })
}

// ProbeMembers returns the members as seen by this node, by name. It asks all at once for their applied index, and
// waits one second at most for the answers.
func (m *memberMonitor) ProbeMembers(ctx context.Context) []MemberStatus {
	return m.collectMemberStatuses(ctx, func(MemberStatus) bool { return true })
}

func (m *memberMonitor) collectMemberStatuses(ctx context.Context, probe func(MemberStatus) bool) []MemberStatus {
	members, wanted, now := m.members(), m.applied.State().PendingVoters, time.Now()
	if members == nil {
		return nil
	}
	all := make([]MemberStatus, len(members))
	var wg sync.WaitGroup
	for i, x := range members {
		s := MemberStatus{Member: x, Self: x.ID == m.id, DiskFailing: x.ID == m.id && m.diskFailing(), PendingVote: slices.Contains(wanted, x.ID)}
		if !s.Self && m.hasGossip {
			s.SinceContact, s.Contacted = m.contacts.sinceContact(x.ID, now)
		}
		all[i] = s
		if s.Self || !probe(s) {
			continue
		}
		wg.Go(func() { all[i].EntriesBehind, all[i].DiskFailing, all[i].Answered = m.queryLag(ctx, x.Addr) })
	}
	wg.Wait()
	return all
}

// queryLag asks a node how many entries it lacks of those known here to be committed, and whether its disk fails to
// take writes.
func (m *memberMonitor) queryLag(ctx context.Context, addr string) (entries uint64, failing, ok bool) {
	goal := m.commitIndex()
	at, failing, err := m.queryProgress(ctx, addr)
	if err != nil {
		return 0, false, false
	}
	return goal - min(goal, at), failing, true
}

// SilentVoters returns the other voters from which no gossip came for silentAfter. It is empty where gossip is
// disabled.
func (m *memberMonitor) SilentVoters() (out []SilentVoter) {
	if !m.hasGossip {
		return nil
	}
	now := time.Now()
	for _, x := range m.members() {
		if quiet := m.contacts.silentFor(x.ID, now); x.Voter && x.ID != m.id && quiet >= silentAfter {
			out = append(out, SilentVoter{ID: x.ID, SilentFor: quiet})
		}
	}
	return out
}

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
