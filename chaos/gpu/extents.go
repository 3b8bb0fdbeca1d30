package gpu

// noExtent marks the end of a list.
const noExtent = int32(-1)

// cacheTier is the location of unreferenced blocks.
type cacheTier uint8

const (
	tierGPU cacheTier = iota
	tierHost
	tierCount
)

// extent is a part of a run whose blocks became unreferenced together. Its last block is evicted first, so that a
// prompt's beginning stays longer than its end.
type extent struct {
	run, from, to  int32
	older, newer   int32 // in the list of all extents of the tier
	deeper, higher int32 // among the run's own: a deeper one is older
}

// extentLists holds unreferenced blocks in the order of last use, by extents.
type extentLists struct {
	extents        []extent
	freeSlots      []int32
	oldest, newest [tierCount]int32
	blockCount     [tierCount]int
}

func newExtentLists() extentLists {
	return extentLists{oldest: [tierCount]int32{noExtent, noExtent}, newest: [tierCount]int32{noExtent, noExtent}}
}

// pushNewest makes a run's blocks the newest, directly before those of the run that are there already.
func (x *extentLists) pushNewest(t cacheTier, runs []blockRun, r, from, to int32) {
	if from >= to {
		return
	}
	x.blockCount[t] += int(to - from)
	own := &runs[r]
	if top := own.newestExtent[t]; top != noExtent && top == x.newest[t] && x.extents[top].from == to {
		x.extents[top].from = from
		return
	}
	id := x.allocExtent()
	x.extents[id] = extent{run: r, from: from, to: to, older: x.newest[t], newer: noExtent, deeper: own.newestExtent[t], higher: noExtent}
	if x.newest[t] != noExtent {
		x.extents[x.newest[t]].newer = id
	} else {
		x.oldest[t] = id
	}
	x.newest[t] = id
	if own.newestExtent[t] != noExtent {
		x.extents[own.newestExtent[t]].higher = id
	}
	own.newestExtent[t] = id
}

func (x *extentLists) allocExtent() int32 {
	if n := len(x.freeSlots); n > 0 {
		id := x.freeSlots[n-1]
		x.freeSlots = x.freeSlots[:n-1]
		return id
	}
	x.extents = append(x.extents, extent{})
	return int32(len(x.extents) - 1)
}

// takeBlocks removes a run's first unreferenced blocks, up to block number to.
func (x *extentLists) takeBlocks(t cacheTier, runs []blockRun, r, to int32) {
	for id := runs[r].newestExtent[t]; id != noExtent && x.extents[id].from < to; id = runs[r].newestExtent[t] {
		e := &x.extents[id]
		n := min(e.to, to)
		x.blockCount[t] -= int(n - e.from)
		if e.from = n; e.from == e.to {
			x.removeExtent(t, runs, id)
		}
	}
}

// popOldest removes at most the given number of least recently used blocks: those of one run from a number on.
func (x *extentLists) popOldest(t cacheTier, runs []blockRun, most int) (r, from, to int32) {
	id := x.oldest[t]
	e := &x.extents[id]
	r, to = e.run, e.to
	from = max(e.from, to-int32(most))
	x.blockCount[t] -= int(to - from)
	if e.to = from; e.from == e.to {
		x.removeExtent(t, runs, id)
	}
	return r, from, to
}

func (x *extentLists) removeExtent(t cacheTier, runs []blockRun, id int32) {
	e := &x.extents[id]
	if e.older != noExtent {
		x.extents[e.older].newer = e.newer
	} else {
		x.oldest[t] = e.newer
	}
	if e.newer != noExtent {
		x.extents[e.newer].older = e.older
	} else {
		x.newest[t] = e.older
	}
	if e.deeper != noExtent {
		x.extents[e.deeper].higher = e.higher
	}
	if e.higher != noExtent {
		x.extents[e.higher].deeper = e.deeper
	} else {
		runs[e.run].newestExtent[t] = e.deeper
	}
	x.freeSlots = append(x.freeSlots, id)
}
