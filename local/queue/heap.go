package queue

// ranked is what a heap holds: it knows its order and keeps its place.
type ranked[E any] interface {
	before(E) bool
	place() *int
}

// heap is a binary heap whose elements know their place, so that any of them can move or leave.
type heap[E ranked[E]] []E

func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	*e.place() = len(*h) - 1
	h.up(len(*h) - 1)
}

// remove takes the element at place i out.
func (h *heap[E]) remove(i int) {
	s := *h
	last := len(s) - 1
	*s[i].place() = -1
	if i != last {
		s[i] = s[last]
		*s[i].place() = i
	}
	var none E
	s[last] = none
	*h = s[:last]
	if i != last {
		h.fix(i)
	}
}

// fix restores the order after the element at place i has changed.
func (h heap[E]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h heap[E]) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].before(h[p]) {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h heap[E]) down(i int) (moved bool) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if least == i {
			return moved
		}
		h.swap(i, least)
		i, moved = least, true
	}
}

func (h heap[E]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].place(), *h[j].place() = i, j
}

// walk goes through a heap in order and leaves it as it is, for as many steps as Next ever takes.
type walk[E ranked[E]] struct {
	h     heap[E]
	n     int
	edge  [maxReach + 1]int32 // places whose parents have been visited and which have not
	steps int
}

func (w *walk[E]) start(h heap[E]) {
	w.h, w.n, w.steps = h, 0, 0
	if len(h) > 0 {
		w.edge[0], w.n = 0, 1
	}
}

func (w *walk[E]) next() (e E, ok bool) {
	if w.n == 0 || w.steps == maxReach {
		return e, false
	}
	best := 0
	for i := 1; i < w.n; i++ {
		if w.h[w.edge[i]].before(w.h[w.edge[best]]) {
			best = i
		}
	}
	at := w.edge[best]
	w.n--
	w.edge[best] = w.edge[w.n]
	for c := 2*at + 1; c <= 2*at+2 && int(c) < len(w.h); c++ {
		w.edge[w.n] = c
		w.n++
	}
	w.steps++
	return w.h[at], true
}
