package steer

import "math"

// cancel takes cycles of displacements that save something until there is none, which is the proof that an assignment
// is the best. A cycle may lead through the sink: less at a dear price here, more at a cheap one there. It reports
// false when the bound came first; the assignment is a possible one all the same.
func (f *flow) cancel(bound int) bool {
	for range bound {
		at := f.cycle()
		if at < 0 {
			return true
		}
		if !f.take(at) {
			return false
		}
		f.augs++
	}
	return false
}

// cycle finds a node on a cycle that saves something, or -1.
func (f *flow) cycle() int {
	n := f.n
	for v := range n + 1 {
		f.dist[v], f.prev[v] = 0, -1
	}
	for range n + 1 {
		changed := f.relaxSink()
		for r := range n {
			d := f.dist[r]
			for t, w := range f.w[r*n : (r+1)*n] {
				if d+w < f.dist[t]-whisker {
					f.dist[t], f.prev[t], changed = d+w, int32(r), true
				}
			}
		}
		if !changed {
			return -1
		}
		if at := f.loops(); at >= 0 {
			return at
		}
	}
	return -1
}

// relaxSink relaxes the edges into the sink, which cost a region's next price, and out of it, which save its last.
func (f *flow) relaxSink() (changed bool) {
	n := f.n
	for r := range n {
		if p, _ := f.m.up(r, f.load[r]); f.dist[r]+p < f.dist[n]-whisker {
			f.dist[n], f.prev[n], changed = f.dist[r]+p, int32(r), true
		}
	}
	for r := range n {
		if p, used := f.m.down(r, f.load[r]); used > 0 && f.dist[n]-p < f.dist[r]-whisker {
			f.dist[r], f.prev[r], changed = f.dist[n]-p, int32(n), true
		}
	}
	return changed
}

// loops finds a node on a cycle of predecessors, or -1.
func (f *flow) loops() int {
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

// take moves as much as possible around the cycle at a node. False: nothing could be moved, or it saves nothing.
func (f *flow) take(at int) bool {
	n := f.n
	part, saved := math.Inf(1), 0.0
	f.path = f.path[:0]
	for v := at; ; {
		u := int(f.prev[v])
		f.path = append(f.path, int32(v))
		switch {
		case v == n:
			p, room := f.m.up(u, f.load[u])
			part, saved = math.Min(part, room), saved-p
		case u == n:
			p, used := f.m.down(v, f.load[v])
			part, saved = math.Min(part, used), saved+p
		default:
			part, saved = math.Min(part, f.slack(u, v)), saved-f.w[u*n+v]
		}
		if v = u; v == at {
			break
		}
	}
	if !(part > 0) || math.IsInf(part, 1) || saved <= 0 {
		return false
	}
	f.turn(part)
	return true
}

// turn moves an amount around the cycle in path, which is listed against its direction.
func (f *flow) turn(part float64) {
	n := f.n
	for _, v := range f.path {
		u := int(f.prev[v])
		switch {
		case int(v) == n:
			f.load[u] += part
		case u == n:
			f.load[v] = math.Max(0, f.load[v]-part)
		default:
			f.shift(u, int(v), part)
		}
	}
	f.refresh()
}
