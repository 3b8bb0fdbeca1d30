package pick

import (
	"cmp"
	"slices"
)

// workerGroups divides the workers of a large view into groups of similar speed and keeps, for each group, inputs of the
// cost that are at least as good as those of every member. The cost formula, evaluated on them, is a lower bound of the
// cost of each: see placement.lowerBound. What changes with a request is one member of one group, so keeping the bounds
// costs the same for any number of workers. The members' own inputs are kept next to each other in the order of the groups:
// reading what a bound needs from the view and the ledger takes longer than computing it.
type workerGroups struct {
	order        []int32      // indices into WorkerView.Workers; groupSize consecutive ones are a group
	positionOf   []int32      // position of each worker in order, by index
	indexOf      []int32      // index of each worker by its ledger slot; -1 for slots of other views
	members      []boundInput // by position in order
	groups       []boundInput // by group
	staleMembers dirtyList
	staleGroups  dirtyList
	seen         uint64 // changes of the ledger that are in the bounds
	edits        int    // changes of snapshots since the groups were formed
	formed       bool
	changes      []int32 // scratch

	// Scratch of one choice.
	depths   []uint16  // blocks of the prompt that any member of a group holds at most, by group
	values   []float64 // each group's bound for the request, in seconds
	visited  []bool    // groups of which every member was examined
	examined []uint32  // by index: the choice that examined the worker last
	choice   uint32
}

func newWorkerGroups(v *WorkerView) *workerGroups {
	n := len(v.Workers)
	count := (n + groupSize - 1) / groupSize
	s := &workerGroups{
		order: make([]int32, n), positionOf: make([]int32, n), examined: make([]uint32, n), members: make([]boundInput, n),
		groups: make([]boundInput, count), staleMembers: newDirtyList(n), staleGroups: newDirtyList(count),
		depths: make([]uint16, count), values: make([]float64, count), visited: make([]bool, count),
	}
	highest := int32(-1)
	for i := range v.Workers {
		s.order[i] = int32(i)
		highest = max(highest, v.Workers[i].ID)
	}
	s.indexOf = make([]int32, highest+1)
	for i := range s.indexOf {
		s.indexOf[i] = -1
	}
	for i := range v.Workers {
		if id := v.Workers[i].ID; id >= 0 {
			s.indexOf[id] = int32(i)
		}
	}
	return s
}

// noteEdit records that a worker's snapshot has changed.
func (s *workerGroups) noteEdit(at int) {
	s.edits++
	if s.formed {
		s.staleMembers.add(s.positionOf[at])
	}
}

// refresh brings all bounds up to date.
func (s *workerGroups) refresh(v *WorkerView, clock int64) {
	if !s.formed || s.edits > regroupAfter*len(s.order) {
		s.formGroups(v)
	}
	s.readChanges(v)
	for _, at := range s.staleMembers.list {
		s.members[at] = newBoundInput(v, s.order[at], clock)
		s.staleGroups.add(at / groupSize)
	}
	s.staleMembers.clear()
	for _, g := range s.staleGroups.list {
		s.mergeGroup(int(g), clock)
	}
	s.staleGroups.clear()
}

// readChanges marks the workers whose totals in the ledger have changed.
func (s *workerGroups) readChanges(v *WorkerView) {
	var ok bool
	if s.changes, s.seen, ok = v.Ledger.AppendChanges(s.changes[:0], s.seen); !ok {
		s.markAll()
		return
	}
	for _, id := range s.changes {
		if int(id) < len(s.indexOf) && s.indexOf[id] >= 0 {
			s.staleMembers.add(s.positionOf[s.indexOf[id]])
		}
	}
}

func (s *workerGroups) markAll() {
	for at := range s.members {
		s.staleMembers.add(int32(at))
	}
}

// formGroups sorts the workers by speed, so that a group's least inputs are close to those of each member. Loads change
// too often to sort by them.
func (s *workerGroups) formGroups(v *WorkerView) {
	slices.SortFunc(s.order, func(a, b int32) int {
		x, y := &v.costInputs[a], &v.costInputs[b]
		return cmp.Or(cmp.Compare(x.secondsPerToken, y.secondsPerToken), cmp.Compare(x.prefillBase, y.prefillBase),
			cmp.Compare(x.queueingFactor, y.queueingFactor), cmp.Compare(a, b))
	})
	for i, at := range s.order {
		s.positionOf[at] = int32(i)
	}
	s.formed, s.edits = true, 0
	s.markAll()
}

// mergeGroup computes the inputs of a group from those of its members.
func (s *workerGroups) mergeGroup(group int, clock int64) {
	g := &s.groups[group]
	*g = boundInput{}
	members := s.members[group*groupSize : min((group+1)*groupSize, len(s.members))]
	for i := range members {
		m := &members[i]
		if !m.usable {
			continue
		}
		wait := m.leastWait(clock)
		if !g.usable {
			*g = *m
			g.clock, g.waitThen = clock, wait
			continue
		}
		g.secondsPerToken, g.prefillBase = min(g.secondsPerToken, m.secondsPerToken), min(g.prefillBase, m.prefillBase)
		g.seqSlope, g.contextSlope = min(g.seqSlope, m.seqSlope), min(g.contextSlope, m.contextSlope)
		g.attentionSlope, g.queueingFactor = min(g.attentionSlope, m.attentionSlope), min(g.queueingFactor, m.queueingFactor)
		g.hitRate = max(g.hitRate, m.hitRate)
		g.seqs, g.held = min(g.seqs, m.seqs), min(g.held, m.held)
		g.waitThen, g.waitFloor, g.drain = min(g.waitThen, wait), min(g.waitFloor, m.waitFloor), max(g.drain, m.drain)
		g.pools, g.unpooled = g.pools|m.pools, g.unpooled || m.unpooled
	}
}
