package queue

// heapElement is an element of a heap: it defines the order and stores its position.
type heapElement[E any] interface {
	isBefore(E) bool
	heapPosition() *int
}

// heap is a binary heap whose elements store their position, so that any of them can be moved or removed.
type heap[E heapElement[E]] []E

func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	*e.heapPosition() = len(*h) - 1
	h.siftUp(len(*h) - 1)
}

// removeAt removes the element at position i.
func (h *heap[E]) removeAt(i int) {
	s := *h
	last := len(s) - 1
	*s[i].heapPosition() = -1
	if i != last {
		s[i] = s[last]
		*s[i].heapPosition() = i
	}
	var none E
	s[last] = none
	*h = s[:last]
	if i != last {
		h.fixAt(i)
	}
}

// fixAt restores the order after the element at position i has changed.
func (h heap[E]) fixAt(i int) {
	if !h.siftDown(i) {
		h.siftUp(i)
	}
}

func (h heap[E]) siftUp(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].isBefore(h[p]) {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h heap[E]) siftDown(i int) (moved bool) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].isBefore(h[least]) {
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
	*h[i].heapPosition(), *h[j].heapPosition() = i, j
}

// heapWalk visits the elements of a heap in order without changing it, for at most maxTriesLimit steps.
type heapWalk[E heapElement[E]] struct {
	elems       heap[E]
	frontierLen int
	frontier    [maxTriesLimit + 1]int32 // positions that are not visited but whose parents are
	steps       int
}

func (w *heapWalk[E]) startAt(h heap[E]) {
	w.elems, w.frontierLen, w.steps = h, 0, 0
	if len(h) > 0 {
		w.frontier[0], w.frontierLen = 0, 1
	}
}

func (w *heapWalk[E]) nextElement() (e E, ok bool) {
	if w.frontierLen == 0 || w.steps == maxTriesLimit {
		return e, false
	}
	best := 0
	for i := 1; i < w.frontierLen; i++ {
		if w.elems[w.frontier[i]].isBefore(w.elems[w.frontier[best]]) {
			best = i
		}
	}
	at := w.frontier[best]
	w.frontierLen--
	w.frontier[best] = w.frontier[w.frontierLen]
	for c := 2*at + 1; c <= 2*at+2 && int(c) < len(w.elems); c++ {
		w.frontier[w.frontierLen] = c
		w.frontierLen++
	}
	w.steps++
	return w.elems[at], true
}
