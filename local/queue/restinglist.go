package queue

// restingList are the tenant queues of a class that neither wait nor run, by the time since which they rest. They keep
// their counters, and may be reused for another tenant.
type restingList[T any] struct {
	longest, latest *tenantQueue[T] // ends of the list
	count           int
}

// addTenant appends a tenant queue, unless it is on the list.
func (r *restingList[T]) addTenant(ln *tenantQueue[T]) {
	if ln.isResting {
		return
	}
	if cap(ln.items) > maxKeptItems {
		ln.items = nil
	}
	r.count++
	ln.isResting, ln.restingLonger, ln.restingShorter = true, r.latest, nil
	if r.latest != nil {
		r.latest.restingShorter = ln
	} else {
		r.longest = ln
	}
	r.latest = ln
}

// removeTenant removes a tenant queue, if it is on the list.
func (r *restingList[T]) removeTenant(ln *tenantQueue[T]) {
	if !ln.isResting {
		return
	}
	if ln.restingLonger != nil {
		ln.restingLonger.restingShorter = ln.restingShorter
	} else {
		r.longest = ln.restingShorter
	}
	if ln.restingShorter != nil {
		ln.restingShorter.restingLonger = ln.restingLonger
	} else {
		r.latest = ln.restingLonger
	}
	r.count--
	ln.isResting, ln.restingLonger, ln.restingShorter = false, nil, nil
}
