package steer

import "math"

// flowSolver solves transport problems exactly. The network of clients, regions and capacity is reduced to the
// regions, because every client is one hop from every region: the edge from r to s costs what the cheapest client in
// r pays to move to s. Paths in that graph are chains of displacements, so a client that may go to one region only
// can displace one with a choice. One solver serves many problems in sequence and keeps its memory.
type flowSolver struct {
	m             *transportProblem
	n             int       // regions, including the unserved one
	x             []float64 // by client, then region: the amount of the client in the region
	load          []float64 // by region
	w             []float64 // n*n: cost of the cheapest displacement
	viaClient     []int32   // n*n: the client of that displacement
	dist          []float64 // n+1: including the sink
	prev          []int32
	seen          []int32 // marks used to find cycles
	path          []int32
	staleRows     []bool // n: rows of w made stale by an assignment
	shortened     []bool // n: regions whose distance fell since their row was relaxed
	augmentations int    // augmentations so far, over all problems
}

// maxAugmentations bounds the augmentations of one problem. Typical ones need a few per client and region; the bound
// keeps unusual inputs from blocking the leader.
func (f *flowSolver) maxAugmentations() int { return 64 * (f.m.clients + f.n) }

func (f *flowSolver) resetFor(m *transportProblem) {
	f.m, f.n = m, m.regions
	f.x = resizeZeroed(f.x, m.clients*m.regions)
	f.load = resizeZeroed(f.load, f.n)
	f.w = resizeSlice(f.w, f.n*f.n)
	f.viaClient = resizeSlice(f.viaClient, f.n*f.n)
	f.dist = resizeSlice(f.dist, f.n+1)
	f.prev = resizeSlice(f.prev, f.n+1)
	f.seen = resizeSlice(f.seen, f.n+1)
	f.staleRows = resizeSlice(f.staleRows, f.n)
	clear(f.staleRows)
	f.shortened = resizeSlice(f.shortened, f.n)
}

func resizeSlice[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func resizeZeroed(s []float64, n int) []float64 {
	s = resizeSlice(s, n)
	clear(s)
	return s
}

// solveFrom solves from an earlier optimal assignment, nil if there is none, and from an empty one where that takes
// longer.
func (f *flowSolver) solveFrom(m *transportProblem, x []float64) {
	if x == nil || !f.solveWarm(m, x) {
		f.solveCold(m)
	}
}

// solveCold solves from an empty assignment: each client is placed along the shortest path of displacements.
func (f *flowSolver) solveCold(m *transportProblem) {
	f.resetFor(m)
	for r := range f.n {
		f.rebuildRow(r)
	}
	left := f.maxAugmentations()
	for c := range m.clients {
		left = f.placeClient(c, m.demand[c], left)
	}
}

// solveWarm solves from an earlier optimal assignment: amounts that may not stay become unserved first, then every
// negative cycle of displacements is canceled, until there is none. It returns false when it reaches its bound:
// cycles that alternately undo part of each other may save a thousandth of the possible gain per step.
func (f *flowSolver) solveWarm(m *transportProblem, x []float64) bool {
	f.resetFor(m)
	for c := range m.clients {
		rest := m.demand[c]
		for r := range f.n - 1 {
			i := c*f.n + r
			if a := math.Min(x[i], rest); a > epsAmount && !math.IsInf(m.cost[i], 1) {
				f.x[i] = a
				f.load[r] += a
				rest -= a
			}
		}
		f.x[c*f.n+f.n-1] = math.Max(0, rest)
		f.load[f.n-1] += math.Max(0, rest)
	}
	for r := range f.n {
		f.rebuildRow(r)
	}
	return f.cancelCycles(256 + 4*(m.clients+f.n)) // beyond that, solving cold is faster
}

// rebuildRow recomputes the cheapest displacements out of region r.
func (f *flowSolver) rebuildRow(r int) {
	m, n := f.m, f.n
	w, via := f.w[r*n:(r+1)*n], f.viaClient[r*n:(r+1)*n]
	for t := range w {
		w[t] = math.Inf(1)
	}
	for c := range m.clients {
		x := f.x[c*n+r]
		if x <= epsAmount {
			continue
		}
		base, _ := m.leaveCost(c, r, x)
		if m.stayAmount == nil {
			for t, k := range m.cost[c*n : (c+1)*n] {
				if d := k - base; d < w[t] {
					w[t], via[t] = d, int32(c)
				}
			}
			continue
		}
		for t := range n {
			if k, _ := m.enterCost(c, t, f.x[c*n+t]); k-base < w[t] {
				w[t], via[t] = k-base, int32(c)
			}
		}
	}
	w[r] = math.Inf(1)
}

// placeClient places an amount of client c and returns the remaining bound. What the bound does not allow is
// unserved.
func (f *flowSolver) placeClient(c int, amount float64, left int) int {
	m, n := f.m, f.n
	for amount > epsAmount {
		if left--; left < 0 {
			f.assignTo(c, n-1, amount)
			return 0
		}
		for r := range n {
			f.dist[r], _ = m.enterCost(c, r, f.x[c*n+r])
			f.prev[r] = -1
		}
		f.prev[n] = -1
		if !f.relaxDistances() {
			f.cancelCycles(left) // rounding left a negative cycle
			left -= f.n
			continue
		}
		best, room := f.cheapestSink()
		part := math.Min(amount, room)
		first := best
		for f.prev[first] >= 0 {
			q := int(f.prev[first])
			part = math.Min(part, f.displacementRoom(q, first))
			first = q
		}
		_, most := m.enterCost(c, first, f.x[c*n+first])
		part = math.Min(part, most)
		amount -= part
		for r := best; f.prev[r] >= 0; r = int(f.prev[r]) {
			f.displaceClient(int(f.prev[r]), r, part)
		}
		f.x[c*n+first] += part
		f.markChanged(c, first)
		f.load[best] += part
		f.rebuildStaleRows()
		f.augmentations++
	}
	if amount > 0 { // a negligible amount stays with the rest
		f.assignTo(c, n-1, amount)
	}
	return left
}

func (f *flowSolver) assignTo(c, r int, amount float64) {
	f.x[c*f.n+r] += amount
	f.load[r] += amount
	f.markChanged(c, r)
	f.rebuildStaleRows()
}

// relaxDistances relaxes distances over displacements (Bellman-Ford). It returns false when predecessors form a loop.
func (f *flowSolver) relaxDistances() bool {
	n := f.n
	for r := range n {
		f.shortened[r] = !math.IsInf(f.dist[r], 1)
	}
	for range n {
		changed := false
		for r := range n {
			if !f.shortened[r] {
				continue
			}
			f.shortened[r] = false
			if f.load[r] <= epsAmount {
				continue // no client to displace
			}
			d := f.dist[r]
			for t, w := range f.w[r*n : (r+1)*n] {
				if d+w < f.dist[t]-epsCost {
					f.dist[t], f.prev[t], f.shortened[t], changed = d+w, int32(r), true, true
				}
			}
		}
		if !changed {
			return true
		}
	}
	return f.findPredecessorLoop() < 0
}

// cheapestSink is the region where the path ends at the lowest cost, including its price. The unserved region always
// has room.
func (f *flowSolver) cheapestSink() (region int, room float64) {
	best, least := f.n-1, math.Inf(1)
	room = math.Inf(1)
	for r := range f.n {
		price, free := f.m.nextPrice(r, f.load[r])
		if d := f.dist[r] + price; d < least-epsCost {
			best, least, room = r, d, free
		}
	}
	return best, room
}

// displacementRoom is how much the displacement from r to t can move at its price.
func (f *flowSolver) displacementRoom(r, t int) float64 {
	c := int(f.viaClient[r*f.n+t])
	_, out := f.m.leaveCost(c, r, f.x[c*f.n+r])
	_, in := f.m.enterCost(c, t, f.x[c*f.n+t])
	return math.Min(out, in)
}

// displaceClient moves the client of the edge from r to t. The caller updates loads: on a path they cancel out.
func (f *flowSolver) displaceClient(r, t int, amount float64) {
	c := int(f.viaClient[r*f.n+t])
	f.x[c*f.n+r] = math.Max(0, f.x[c*f.n+r]-amount)
	f.x[c*f.n+t] += amount
	f.markChanged(c, r)
	f.markChanged(c, t)
}

// markChanged records that client c's amount in region r changed. Where moves have a cost, the client's cost of
// entering r has changed too, from any region.
func (f *flowSolver) markChanged(c, r int) {
	f.staleRows[r] = true
	if f.m.stayAmount == nil {
		return
	}
	for t, x := range f.x[c*f.n : (c+1)*f.n] {
		f.staleRows[t] = f.staleRows[t] || x > epsAmount
	}
}

// rebuildStaleRows recomputes the rows that markChanged marked.
func (f *flowSolver) rebuildStaleRows() {
	for r, old := range f.staleRows {
		if old {
			f.rebuildRow(r)
			f.staleRows[r] = false
		}
	}
}

// capacityPrices is the marginal value of each region's capacity, in seconds: the saving by leaving it, including
// that of a client that could then enter; for an empty region, what the first client would pay. With these prices
// added, every client is in its cheapest region.
func (f *flowSolver) capacityPrices(out []float64) []float64 {
	n := f.n
	out = resizeSlice(out, n)
	for r := range out {
		out[r] = math.Inf(-1)
		if p, _ := f.m.lastPrice(r, f.load[r]); p > 0 {
			out[r] = p
		} else if f.load[r] > epsAmount {
			out[r] = 0
		} else if p, room := f.m.nextPrice(r, 0); room > 0 {
			out[r] = p
		}
	}
	for range n {
		changed := false
		for s := range n {
			for r, w := range f.w[s*n : (s+1)*n] {
				if v := out[s] - w; v > out[r]+epsCost {
					out[r], changed = v, true
				}
			}
		}
		if !changed {
			break
		}
	}
	for r := range out {
		out[r] = math.Max(0, out[r])
	}
	return out
}

// minSolvedDemand is the part of a model's demand below which a client is not passed to the solver, whose amounts are
// exact to epsAmount.
const minSolvedDemand = 100 * epsAmount

// placeSmallClients places the clients with too little demand for the solver in the region that is cheapest by the
// others' prices.
func (f *flowSolver) placeSmallClients(prices []float64) {
	m := f.m
	for c, demand := range m.demand {
		if demand > minSolvedDemand {
			continue
		}
		best, least := -1, math.Inf(1)
		for r := range f.n - 1 {
			if v := m.cost[c*f.n+r] + prices[r]; v < least {
				best, least = r, v
			}
		}
		if best < 0 {
			continue
		}
		row := f.x[c*f.n : (c+1)*f.n]
		clear(row)
		row[best] = demand
	}
}

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
