package queue

// lane is one tenant in one class: what waits, what runs, and what it has cost so far.
type lane[T any] struct {
	tenant  string
	items   heap[*Item[T]] // waiting, the earliest due first
	work    int64
	missed  int64 // of work: what cannot be in time any more
	bytes   int64
	running int
	busy    float64 // what those that run are expected to cost, in seconds of GPU time
	counter float64 // virtual time of the tenant: seconds of GPU time over its weight
	weight  float64
	joined  uint64 // when it began to wait; among equals the longest waiting goes first
	at      int    // in the class's heap; -1 when nothing of it waits
	resting bool   // on the list of those that neither wait nor run
	longer  *lane[T]
	shorter *lane[T]
}

func (l *lane[T]) before(o *lane[T]) bool {
	if l.counter != o.counter {
		return l.counter < o.counter
	}
	return l.joined < o.joined
}

func (l *lane[T]) place() *int { return &l.at }

// keepItems bounds the memory that a lane keeps for items once they are gone.
const keepItems = 64

// line is one class: its tenants, and all its waiting items by arrival.
type line[T any] struct {
	lanes          map[string]*lane[T]
	others         lane[T] // tenants beyond the bound share it
	waiting        heap[*lane[T]]
	weights        float64  // of the lanes that wait
	longest, rests *lane[T] // ends of the list of resting lanes: who has rested longest goes first
	oldest, newest *Item[T]
	running        int
	busy           float64 // of its lanes
	rested         int     // lanes on the list of resting ones
	n              int
	work           int64
	missed         int64 // of work: what cannot be in time any more
	bytes          int64
	pass           float64  // virtual time of the class: the least is served next
	left           float64  // counter of the tenant that left the queue last
	clock          float64  // fair share so far of a tenant that has waited all along
	slack          float64  // of the clock: the largest recent cost
	drain          drain    // of its work alone
	asked          [2]asked // who asked last, and when somebody else last did
	count          counts
}

// lane finds or makes a tenant's lane. Beyond max lanes the one that has rested longest is given to the newcomer.
func (l *line[T]) lane(tenant string, max int) *lane[T] {
	if ln := l.lanes[tenant]; ln != nil {
		return ln
	}
	var ln *lane[T]
	switch {
	case len(l.lanes) < max:
		ln = &lane[T]{at: -1}
	case l.longest != nil:
		ln = l.longest
		l.wakeUp(ln)
		delete(l.lanes, ln.tenant)
		*ln = lane[T]{at: -1, items: ln.items}
	default:
		return &l.others
	}
	ln.tenant = tenant
	l.lanes[tenant] = ln
	return ln
}

// weigh gives a tenant's lane the weight that its newest request names. Those who share a lane weigh 1 together.
func (l *line[T]) weigh(ln *lane[T], weight float64) {
	if ln == &l.others {
		weight = 1
	}
	if ln.at >= 0 {
		l.weights += weight - ln.weight
	}
	ln.weight = weight
}

// begin and end keep the lanes that wait.
func (l *line[T]) begin(ln *lane[T]) {
	l.waiting.push(ln)
	l.weights += ln.weight
}

func (l *line[T]) end(ln *lane[T]) {
	l.waiting.remove(ln.at)
	if l.weights -= ln.weight; len(l.waiting) == 0 {
		l.weights = 0 // what rounding has left
	}
	l.left = ln.counter
}

// rest puts a lane that neither waits nor runs on the list of those whose place may be given away.
func (l *line[T]) rest(ln *lane[T]) {
	if ln == &l.others || ln.resting || ln.running > 0 || len(ln.items) > 0 {
		return
	}
	if cap(ln.items) > keepItems {
		ln.items = nil
	}
	l.rested++
	ln.resting, ln.longer, ln.shorter = true, l.rests, nil
	if l.rests != nil {
		l.rests.shorter = ln
	} else {
		l.longest = ln
	}
	l.rests = ln
}

func (l *line[T]) wakeUp(ln *lane[T]) {
	if !ln.resting {
		return
	}
	if ln.longer != nil {
		ln.longer.shorter = ln.shorter
	} else {
		l.longest = ln.shorter
	}
	if ln.shorter != nil {
		ln.shorter.longer = ln.longer
	} else {
		l.rests = ln.longer
	}
	l.rested--
	ln.resting, ln.longer, ln.shorter = false, nil, nil
}

// append and unlink keep the class's items by arrival.
func (l *line[T]) append(it *Item[T]) {
	it.older, it.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = it
	} else {
		l.oldest = it
	}
	l.newest = it
	l.n++
	l.work += it.Work
	l.bytes += it.Bytes
}

func (l *line[T]) unlink(it *Item[T]) {
	if it.older != nil {
		it.older.newer = it.newer
	} else {
		l.oldest = it.newer
	}
	if it.newer != nil {
		it.newer.older = it.older
	} else {
		l.newest = it.older
	}
	it.older, it.newer = nil, nil
	l.n--
	l.work -= it.Work
	l.bytes -= it.Bytes
}
