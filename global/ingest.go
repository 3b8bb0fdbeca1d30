package global

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// summaryStore keeps the newest capacity summary of every gateway. Uplink sessions write to it; the snapshotBuilder
// reads it.
type summaryStore struct {
	mu           sync.Mutex
	book         *capacity.SummaryTable
	lastStates   map[capacity.Path]gatewayState
	summaryCount atomic.Uint64
	wake         func() // called when a change cannot wait for the next tick
}

// gatewayState is the part of a gateway's summary whose change triggers a new snapshot at once.
type gatewayState struct{ draining, hasReadyWorkers, unreachable bool }

func newSummaryStore(wake func()) *summaryStore {
	return &summaryStore{book: capacity.NewSummaryTable(capacity.FreshnessThresholds{}), lastStates: map[capacity.Path]gatewayState{}, wake: wake}
}

// handleSummary stores a summary. It wakes the snapshotBuilder if the gateway was unknown or unreachable, starts or
// stops draining, or gains or loses all its workers.
func (i *summaryStore) handleSummary(_ identity.ID, s *capacity.Summary) {
	i.summaryCount.Add(1)
	if i.putSummary(s, gatewayState{draining: s.Draining, hasReadyWorkers: hasReadyWorkers(s)}) {
		i.wake()
	}
}

func (i *summaryStore) putSummary(s *capacity.Summary, is gatewayState) (news bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.book.PutSummary(s, time.Now()) {
		return false
	}
	was, known := i.lastStates[s.Path]
	if len(i.lastStates) >= capacity.MaxTableChildren && !known {
		clear(i.lastStates) // gateways come and go by certificate; the table drops them as well
	}
	i.lastStates[s.Path] = is
	return !known || was != is
}

func hasReadyWorkers(s *capacity.Summary) (ready bool) {
	for m := range s.Models {
		ready = ready || s.Models[m].Ready > 0
	}
	return ready
}

// markUnreachable marks a gateway whose session ended.
func (i *summaryStore) markUnreachable(_ identity.ID, p capacity.Path) {
	i.mu.Lock()
	i.book.MarkUnreachable(p)
	i.lastStates[p] = gatewayState{unreachable: true}
	i.mu.Unlock()
	i.wake()
}

// forgetGateway drops the summaries of a gateway that restarts with a lower boot number.
func (i *summaryStore) forgetGateway(p capacity.Path) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.book.RemoveChild(p)
}

// capacityView returns the view of the table at now.
func (i *summaryStore) capacityView(now time.Time) *capacity.CapacityView {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.book.BuildView(now)
}
