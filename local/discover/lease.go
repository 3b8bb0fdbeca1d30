package discover

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// owner is who has registered a worker: the hash of the token.
type owner [32]byte

// lease is one registered worker.
type lease struct {
	worker Worker
	owner  owner
	until  time.Time
}

// book holds the leases. It decides and does nothing else: callers bring the time and hold the lock.
type book struct {
	max     int
	term    time.Duration
	leases  map[string]*lease
	expired float64
}

func newBook(most int, term time.Duration) *book {
	return &book{max: most, term: term, leases: map[string]*lease{}}
}

// put registers a worker or renews it; changed when it is new or not as it was.
func (b *book) put(w Worker, by owner, now time.Time) (changed bool, no *refused) {
	l := b.leases[w.Name]
	if l != nil && l.owner != by {
		return false, refuse(http.StatusConflict, "taken", "another token has registered a worker of this name: choose another name, or wait for its lease to end")
	}
	for _, o := range b.leases {
		if o.worker.Name != w.Name && place(o.worker.URL) == place(w.URL) {
			return false, refuse(http.StatusConflict, "taken", fmt.Sprintf("worker %s is registered with the same URL: list each inference server once, or wait for its lease to end", o.worker.Name))
		}
	}
	if l == nil {
		if len(b.leases) >= b.max {
			return false, refuse(http.StatusServiceUnavailable, "full", fmt.Sprintf("%d workers are registered: raise registration.max_workers", b.max))
		}
		l = &lease{owner: by}
		b.leases[w.Name] = l
		changed = true
	}
	changed = changed || !same(&l.worker, &w)
	l.worker, l.until = w, now.Add(b.term)
	return changed, nil
}

// leave ends a lease.
func (b *book) leave(name string, by owner) *refused {
	l := b.leases[name]
	if l == nil || l.owner != by { // who else is there is nobody's business
		return refuse(http.StatusNotFound, "unknown", "this token has registered no worker of this name")
	}
	delete(b.leases, name)
	return nil
}

// overslept is how late a look at the book may come before it was this process that stood still, and not the workers.
const overslept = 2 * time.Second

// tick is expire for a look that was due at a time. When it comes much later than that, because this process was stopped
// or its machine slept, nobody could have renewed: each worker has a whole term to show that it is there.
func (b *book) tick(now, due time.Time) (names []string) {
	if due.IsZero() || now.Sub(due) <= overslept {
		return b.expire(now)
	}
	for _, l := range b.leases {
		l.until = now.Add(b.term)
	}
	return nil
}

// expire ends the leases that nobody has renewed.
func (b *book) expire(now time.Time) (names []string) {
	for n, l := range b.leases {
		if !now.Before(l.until) {
			names = append(names, n)
			delete(b.leases, n)
		}
	}
	b.expired += float64(len(names))
	slices.Sort(names)
	return names
}

// next is when the first lease ends; zero when there is none.
func (b *book) next() (t time.Time) {
	for _, l := range b.leases {
		if t.IsZero() || l.until.Before(t) {
			t = l.until
		}
	}
	return t
}

// workers are those with a lease, by name.
func (b *book) workers() []Worker {
	var out []Worker
	for _, l := range b.leases {
		out = append(out, l.worker)
	}
	slices.SortFunc(out, func(x, y Worker) int { return strings.Compare(x.Name, y.Name) })
	return out
}
