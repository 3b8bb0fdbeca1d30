package gpu

// none marks the end of a list.
const none = int32(-1)

// tier is where unreferenced blocks lie.
type tier uint8

const (
	onGPU tier = iota
	inHost
	tiers
)

// extent is a part of a run whose blocks became unreferenced together. Its last block is thrown out first, so that a
// prompt's beginning outlives its end.
type extent struct {
	run, from, to  int32
	older, newer   int32 // in the list of all extents of the tier
	deeper, higher int32 // among the run's own: a deeper one is older
}

// extents keeps unreferenced blocks in the order in which they were last used, an extent at a time.
type extents struct {
	all            []extent
	spare          []int32
	oldest, newest [tiers]int32
	blocks         [tiers]int
}

func newExtents() extents {
	return extents{oldest: [tiers]int32{none, none}, newest: [tiers]int32{none, none}}
}

// push makes a run's blocks the newest. They lie right before those of the run's that are there already.
func (x *extents) push(t tier, runs []run, r, from, to int32) {
	if from >= to {
		return
	}
	x.blocks[t] += int(to - from)
	own := &runs[r]
	if top := own.top[t]; top != none && top == x.newest[t] && x.all[top].from == to {
		x.all[top].from = from
		return
	}
	id := x.place()
	x.all[id] = extent{run: r, from: from, to: to, older: x.newest[t], newer: none, deeper: own.top[t], higher: none}
	if x.newest[t] != none {
		x.all[x.newest[t]].newer = id
	} else {
		x.oldest[t] = id
	}
	x.newest[t] = id
	if own.top[t] != none {
		x.all[own.top[t]].higher = id
	}
	own.top[t] = id
}

func (x *extents) place() int32 {
	if n := len(x.spare); n > 0 {
		id := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return id
	}
	x.all = append(x.all, extent{})
	return int32(len(x.all) - 1)
}

// take removes a run's first unreferenced blocks, up to the block of this number.
func (x *extents) take(t tier, runs []run, r, to int32) {
	for id := runs[r].top[t]; id != none && x.all[id].from < to; id = runs[r].top[t] {
		e := &x.all[id]
		n := min(e.to, to)
		x.blocks[t] -= int(n - e.from)
		if e.from = n; e.from == e.to {
			x.remove(t, runs, id)
		}
	}
}

// pop removes at most so many of the blocks that were used the longest ago: those of one run from a number on.
func (x *extents) pop(t tier, runs []run, most int) (r, from, to int32) {
	id := x.oldest[t]
	e := &x.all[id]
	r, to = e.run, e.to
	from = max(e.from, to-int32(most))
	x.blocks[t] -= int(to - from)
	if e.to = from; e.from == e.to {
		x.remove(t, runs, id)
	}
	return r, from, to
}

func (x *extents) remove(t tier, runs []run, id int32) {
	e := &x.all[id]
	if e.older != none {
		x.all[e.older].newer = e.newer
	} else {
		x.oldest[t] = e.newer
	}
	if e.newer != none {
		x.all[e.newer].older = e.older
	} else {
		x.newest[t] = e.older
	}
	if e.deeper != none {
		x.all[e.deeper].higher = e.higher
	}
	if e.higher != none {
		x.all[e.higher].deeper = e.deeper
	} else {
		runs[e.run].top[t] = e.deeper
	}
	x.spare = append(x.spare, id)
}
