package live

import (
	"sync"

	"github.com/spillway-lb/spillway/chaos/drill"
)

// nodeEpoch is the epoch of the plan in force at a node, as its metrics page has it.
type nodeEpoch struct {
	mu    sync.Mutex
	epoch uint64
}

func (e *nodeEpoch) get() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

func (e *nodeEpoch) set(n uint64) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed = e.epoch != n
	e.epoch = n
	return changed
}

// leaderWatch derives who leads from what every node states about itself.
type leaderWatch struct {
	events *eventQueue

	mu      sync.Mutex
	leads   map[string]bool
	leader  string
	started bool
}

func (w *leaderWatch) observe(node string, leads bool, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leads == nil {
		w.leads = map[string]bool{}
	}
	if leads && !w.leads[node] {
		w.events.add(drill.Event{Kind: drill.TermSeen, Node: node, Number: term})
	}
	w.leads[node] = leads
	now := ""
	switch {
	case leads:
		now = node
	case w.leader != node:
		now = w.leader
	}
	if now == "" {
		for other, is := range w.leads {
			if is {
				now = other
			}
		}
	}
	if !w.started && now == "" || w.started && now == w.leader {
		return
	}
	w.started, w.leader = true, now
	w.events.add(drill.Event{Kind: drill.LeaderChanged, Node: now})
}
