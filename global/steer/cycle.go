package steer

import "math"

// cancelCycles cancels negative cycles of displacements until none is left, which proves that the assignment is
// optimal. A cycle may pass through the sink: less at a high price in one region, more at a low one in another. It
// returns false when it reaches the bound first; the assignment is feasible then too.
func (f *flowSolver) cancelCycles(bound int) bool {
	for range bound {
		at := f.findCycle()
		if at < 0 {
			return true
		}
		if !f.cancelCycleAt(at) {
			return false
		}
		f.augmentations++
	}
	return false
}

// findCycle returns a node on a negative cycle, or -1.
func (f *flowSolver) findCycle() int {
	n := f.n
	for v := range n + 1 {
		f.dist[v], f.prev[v] = 0, -1
	}
	for range n + 1 {
		changed := f.relaxSink()
		for r := range n {
			d := f.dist[r]
			for t, w := range f.w[r*n : (r+1)*n] {
				if d+w < f.dist[t]-epsCost {
					f.dist[t], f.prev[t], changed = d+w, int32(r), true
				}
			}
		}
		if !changed {
			return -1
		}
		if at := f.findPredecessorLoop(); at >= 0 {
			return at
		}
	}
	return -1
}

// relaxSink relaxes the edges into the sink, which cost a region's next price, and out of it, which save its last
// price.
func (f *flowSolver) relaxSink() (changed bool) {
	n := f.n
	for r := range n {
		if p, _ := f.m.nextPrice(r, f.load[r]); f.dist[r]+p < f.dist[n]-epsCost {
			f.dist[n], f.prev[n], changed = f.dist[r]+p, int32(r), true
		}
	}
	for r := range n {
		if p, used := f.m.lastPrice(r, f.load[r]); used > 0 && f.dist[n]-p < f.dist[r]-epsCost {
			f.dist[r], f.prev[r], changed = f.dist[n]-p, int32(n), true
		}
	}
	return changed
}

// findPredecessorLoop returns a node on a loop of predecessors, or -1.
func (f *flowSolver) findPredecessorLoop() int {
	nodes := len(f.prev)
	for i := range f.seen[:nodes] {
		f.seen[i] = -1
	}
	for v := range nodes {
		u := int32(v)
		for u >= 0 && f.seen[u] < 0 {
			f.seen[u] = int32(v)
			u = f.prev[u]
		}
		if u >= 0 && f.seen[u] == int32(v) {
			return int(u)
		}
	}
	return -1
}

// cancelCycleAt moves as much as possible around the cycle at a node. It returns false if nothing can be moved or
// nothing is saved.
func (f *flowSolver) cancelCycleAt(at int) bool {
	n := f.n
	part, saved := math.Inf(1), 0.0
	f.path = f.path[:0]
	for v := at; ; {
		u := int(f.prev[v])
		f.path = append(f.path, int32(v))
		switch {
		case v == n:
			p, room := f.m.nextPrice(u, f.load[u])
			part, saved = math.Min(part, room), saved-p
		case u == n:
			p, used := f.m.lastPrice(v, f.load[v])
			part, saved = math.Min(part, used), saved+p
		default:
			part, saved = math.Min(part, f.displacementRoom(u, v)), saved-f.w[u*n+v]
		}
		if v = u; v == at {
			break
		}
	}
	if !(part > 0) || math.IsInf(part, 1) || saved <= 0 {
		return false
	}
	f.shiftAroundCycle(part)
	return true
}

// shiftAroundCycle moves an amount around the cycle in path, which is listed in reverse direction.
func (f *flowSolver) shiftAroundCycle(part float64) {
	n := f.n
	for _, v := range f.path {
		u := int(f.prev[v])
		switch {
		case int(v) == n:
			f.load[u] += part
		case u == n:
			f.load[v] = math.Max(0, f.load[v]-part)
		default:
			f.displaceClient(u, int(v), part)
		}
	}
	f.rebuildStaleRows()
}
