package global

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// nodeClock is this node's wall clock, with the result of its last comparison with the other nodes' clocks.
type nodeClock struct {
	atomic.Pointer[clockState] // nil before the first comparison
	name                       string
	wallClock                  func() time.Time // nil: time.Now
	node                       *consensus.Node
	peerReports                *peerReports
	mu                         sync.Mutex // of guard
	guard                      clockGuard
}

// wallTime returns this node's wall clock.
func (s *nodeClock) wallTime() time.Time {
	if s.wallClock != nil {
		return s.wallClock()
	}
	return time.Now()
}

// compareClocks evaluates this node's clock by the recent reports of the other nodes. The snapshotBuilder calls it at
// each tick, and the leader before its timed duties, so that a clock that was just set triggers nothing.
func (s *nodeClock) compareClocks(now time.Time) *clockState {
	s.mu.Lock()
	defer s.mu.Unlock()
	offsets := s.peerReports.clockOffsets(now, s.wallTime())
	out := s.guard.updateState(estimateClock(s.name, voterNames(s.node), offsets), offsets, now)
	s.Store(out)
	return out
}

// wallShift returns the difference between correctedWallTime and time.Now.
func (s *nodeClock) wallShift() time.Duration {
	shift := s.Load().clockCorrection()
	if s.wallClock != nil {
		shift += time.Until(s.wallClock())
	}
	return shift
}

// correctedWallTime returns this node's wall clock, less its estimated error while it is wrong.
func (s *nodeClock) correctedWallTime() time.Time {
	return s.wallTime().Add(s.Load().clockCorrection())
}

// voterNames returns the names of the nodes with a vote.
func voterNames(node *consensus.Node) (names []string) {
	for _, m := range node.Members() {
		if m.Voter {
			names = append(names, m.ID)
		}
	}
	return names
}
