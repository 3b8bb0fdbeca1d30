package steer

import "math"

// flow solves markets exactly. The network of clients, regions and capacity collapses onto the regions, because clients
// stand one hop from every region: the edge from r to s costs what the cheapest client in r pays for moving to s. Paths
// over that graph are chains of displacement, so a client that may go to one region only can push out one that has a
// choice. One flow serves many markets, one after the other, and keeps its memory.
type flow struct {
	m    *market
	n    int       // regions, with nowhere
	x    []float64 // client by client: what each has in each region
	load []float64 // by region
	w    []float64 // n*n: the cost of the cheapest displacement
	via  []int32   // n*n: the client that gives it
	dist []float64 // n+1: with the sink
	prev []int32
	seen []int32 // marks for finding cycles
	path []int32
	old  []bool // n: rows of w that an assignment has overtaken
	hot  []bool // n: regions whose distance fell since their row was looked at
	augs int    // augmentations so far, over all markets
}

// bound is how many augmentations one market may take. Real ones take a few for each client and region; the bound is
// there so that no input, however odd, holds the leader up.
func (f *flow) bound() int { return 64 * (f.m.clients + f.n) }

func (f *flow) reset(m *market) {
	f.m, f.n = m, m.regions
	f.x = zeroed(f.x, m.clients*m.regions)
	f.load = zeroed(f.load, f.n)
	f.w = grown(f.w, f.n*f.n)
	f.via = grown(f.via, f.n*f.n)
	f.dist = grown(f.dist, f.n+1)
	f.prev = grown(f.prev, f.n+1)
	f.seen = grown(f.seen, f.n+1)
	f.old = grown(f.old, f.n)
	clear(f.old)
	f.hot = grown(f.hot, f.n)
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func zeroed(s []float64, n int) []float64 {
	s = grown(s, n)
	clear(s)
	return s
}

// solve solves from an assignment that was good before, nil if there is none, and from nothing where that takes longer.
func (f *flow) solve(m *market, x []float64) {
	if x == nil || !f.warm(m, x) {
		f.cold(m)
	}
}

// cold solves from nothing: each client is pushed along the shortest path of displacements.
func (f *flow) cold(m *market) {
	f.reset(m)
	for r := range f.n {
		f.row(r)
	}
	left := f.bound()
	for c := range m.clients {
		left = f.push(c, m.demand[c], left)
	}
}

// warm solves from an assignment that was good before: what may not stay goes nowhere first, and then every cycle of
// displacements that saves something is taken, until there is none. It reports false when it ran into its bound: cycles
// that take turns in undoing a part of each other may save a thousandth of what there is to save at a time.
func (f *flow) warm(m *market, x []float64) bool {
	f.reset(m)
	for c := range m.clients {
		rest := m.demand[c]
		for r := range f.n - 1 {
			i := c*f.n + r
			if a := math.Min(x[i], rest); a > dust && !math.IsInf(m.cost[i], 1) {
				f.x[i] = a
				f.load[r] += a
				rest -= a
			}
		}
		f.x[c*f.n+f.n-1] = math.Max(0, rest)
		f.load[f.n-1] += math.Max(0, rest)
	}
	for r := range f.n {
		f.row(r)
	}
	return f.cancel(256 + 4*(m.clients+f.n)) // beyond that, cold is faster
}

// row finds the cheapest displacements out of region r anew.
func (f *flow) row(r int) {
	m, n := f.m, f.n
	w, via := f.w[r*n:(r+1)*n], f.via[r*n:(r+1)*n]
	for t := range w {
		w[t] = math.Inf(1)
	}
	for c := range m.clients {
		x := f.x[c*n+r]
		if x <= dust {
			continue
		}
		base, _ := m.leave(c, r, x)
		if m.kept == nil {
			for t, k := range m.cost[c*n : (c+1)*n] {
				if d := k - base; d < w[t] {
					w[t], via[t] = d, int32(c)
				}
			}
			continue
		}
		for t := range n {
			if k, _ := m.enter(c, t, f.x[c*n+t]); k-base < w[t] {
				w[t], via[t] = k-base, int32(c)
			}
		}
	}
	w[r] = math.Inf(1)
}

// push places an amount of client c and returns what is left of the bound. What the bound does not allow goes nowhere.
func (f *flow) push(c int, amount float64, left int) int {
	m, n := f.m, f.n
	for amount > dust {
		if left--; left < 0 {
			f.give(c, n-1, amount)
			return 0
		}
		for r := range n {
			f.dist[r], _ = m.enter(c, r, f.x[c*n+r])
			f.prev[r] = -1
		}
		f.prev[n] = -1
		if !f.relax() {
			f.cancel(left) // rounding has left a cycle that saves something
			left -= f.n
			continue
		}
		best, room := f.sink()
		part := math.Min(amount, room)
		first := best
		for f.prev[first] >= 0 {
			q := int(f.prev[first])
			part = math.Min(part, f.slack(q, first))
			first = q
		}
		_, most := m.enter(c, first, f.x[c*n+first])
		part = math.Min(part, most)
		amount -= part
		for r := best; f.prev[r] >= 0; r = int(f.prev[r]) {
			f.shift(int(f.prev[r]), r, part)
		}
		f.x[c*n+first] += part
		f.touch(c, first)
		f.load[best] += part
		f.refresh()
		f.augs++
	}
	if amount > 0 { // dust stays together with the rest
		f.give(c, n-1, amount)
	}
	return left
}

func (f *flow) give(c, r int, amount float64) {
	f.x[c*f.n+r] += amount
	f.load[r] += amount
	f.touch(c, r)
	f.refresh()
}

// relax shortens distances over displacements (Bellman and Ford). It reports false where predecessors go in a circle.
func (f *flow) relax() bool {
	n := f.n
	for r := range n {
		f.hot[r] = !math.IsInf(f.dist[r], 1)
	}
	for range n {
		changed := false
		for r := range n {
			if !f.hot[r] {
				continue
			}
			f.hot[r] = false
			if f.load[r] <= dust {
				continue // nobody to displace
			}
			d := f.dist[r]
			for t, w := range f.w[r*n : (r+1)*n] {
				if d+w < f.dist[t]-whisker {
					f.dist[t], f.prev[t], f.hot[t], changed = d+w, int32(r), true, true
				}
			}
		}
		if !changed {
			return true
		}
	}
	return f.loops() < 0
}

// sink is the region where the path ends cheapest, its price included. Nowhere always has room.
func (f *flow) sink() (region int, room float64) {
	best, least := f.n-1, math.Inf(1)
	room = math.Inf(1)
	for r := range f.n {
		price, free := f.m.up(r, f.load[r])
		if d := f.dist[r] + price; d < least-whisker {
			best, least, room = r, d, free
		}
	}
	return best, room
}

// slack is how much the displacement from r to t can move at its price.
func (f *flow) slack(r, t int) float64 {
	c := int(f.via[r*f.n+t])
	_, out := f.m.leave(c, r, f.x[c*f.n+r])
	_, in := f.m.enter(c, t, f.x[c*f.n+t])
	return math.Min(out, in)
}

// shift moves the client that stands for the edge from r to t. Loads are the caller's: on a path they cancel.
func (f *flow) shift(r, t int, amount float64) {
	c := int(f.via[r*f.n+t])
	f.x[c*f.n+r] = math.Max(0, f.x[c*f.n+r]-amount)
	f.x[c*f.n+t] += amount
	f.touch(c, r)
	f.touch(c, t)
}

// touch notes that client c's part of region r has changed. Where moves cost, what it pays for coming to r has changed
// with it, wherever it comes from.
func (f *flow) touch(c, r int) {
	f.old[r] = true
	if f.m.kept == nil {
		return
	}
	for t, x := range f.x[c*f.n : (c+1)*f.n] {
		f.old[t] = f.old[t] || x > dust
	}
}

// refresh finds the displacements anew that touch has noted.
func (f *flow) refresh() {
	for r, old := range f.old {
		if old {
			f.row(r)
			f.old[r] = false
		}
	}
}

// prices is what a little of each region's capacity is worth, in seconds: what leaving it would save, by itself or by
// letting somebody in who was kept out; in a region that has nobody, what the first would pay. With them added, every
// client is where it is cheapest.
func (f *flow) prices(out []float64) []float64 {
	n := f.n
	out = grown(out, n)
	for r := range out {
		out[r] = math.Inf(-1)
		if p, _ := f.m.down(r, f.load[r]); p > 0 {
			out[r] = p
		} else if f.load[r] > dust {
			out[r] = 0
		} else if p, room := f.m.up(r, 0); room > 0 {
			out[r] = p
		}
	}
	for range n {
		changed := false
		for s := range n {
			for r, w := range f.w[s*n : (s+1)*n] {
				if v := out[s] - w; v > out[r]+whisker {
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

// small is the part of a market's demand that is too little for the solver, whose amounts are exact to dust.
const small = 100 * dust

// placeSmall places the clients that ask for too little for the solver where the prices of the others make it cheapest.
// However much one client asks for, the others keep a region of their own choice.
func (f *flow) placeSmall(prices []float64) {
	m := f.m
	for c, demand := range m.demand {
		if demand > small {
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
