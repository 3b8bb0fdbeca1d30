package queue

// add links an item into its tenant's lane and its class.
func (q *Queue[T]) add(it *Item[T]) {
	l := &q.lines[it.Class]
	if l.n == 0 {
		q.arrive(it.Class)
	}
	ln := l.lanes[it.Tenant]
	if ln == nil {
		ln = &lane[T]{tenant: it.Tenant}
		l.lanes[it.Tenant] = ln
		l.join(ln)
	}
	it.lane = ln
	it.prev, it.next = ln.tail, nil
	if ln.tail != nil {
		ln.tail.next = it
	} else {
		ln.head = it
	}
	ln.tail = it
	ln.n++
	it.older, it.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = it
	} else {
		l.oldest = it
	}
	l.newest = it
	l.n++
	l.work += it.Work
	q.n++
	q.work += it.Work
}

// cut unlinks an item; a lane without items leaves the ring, so that tenants who come and go leave nothing behind.
func (q *Queue[T]) cut(it *Item[T]) {
	l, ln := &q.lines[it.Class], it.lane
	link(it.prev, &ln.head, it.next, func(i *Item[T]) **Item[T] { return &i.next })
	link(it.next, &ln.tail, it.prev, func(i *Item[T]) **Item[T] { return &i.prev })
	link(it.older, &l.oldest, it.newer, func(i *Item[T]) **Item[T] { return &i.newer })
	link(it.newer, &l.newest, it.older, func(i *Item[T]) **Item[T] { return &i.older })
	ln.n--
	if ln.n == 0 {
		l.leave(ln)
		delete(l.lanes, ln.tenant)
	}
	l.n--
	l.work -= it.Work
	q.n--
	q.work -= it.Work
	if q.stuck == it {
		q.stuck = nil
	}
	it.lane, it.prev, it.next, it.older, it.newer = nil, nil, nil, nil, nil
}

// link points from's field, or the end of the list when there is no from, at to.
func link[T any](from *Item[T], end **Item[T], to *Item[T], field func(*Item[T]) **Item[T]) {
	if from != nil {
		*field(from) = to
		return
	}
	*end = to
}

// join puts a lane at the end of the round: just before whose turn it is.
func (l *line[T]) join(ln *lane[T]) {
	if l.turn == nil {
		ln.next, ln.prev = ln, ln
		l.turn = ln
		return
	}
	last := l.turn.prev
	last.next, ln.prev = ln, last
	ln.next, l.turn.prev = l.turn, ln
}

func (l *line[T]) leave(ln *lane[T]) {
	if ln.next == ln {
		l.turn = nil
		return
	}
	ln.prev.next, ln.next.prev = ln.next, ln.prev
	if l.turn == ln {
		l.turn = ln.next
	}
}
