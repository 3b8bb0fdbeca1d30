package discover

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// tokenHash identifies the owner of a registration: the hash of its token.
type tokenHash [32]byte

// workerLease is one registered worker.
type workerLease struct {
	worker    Worker
	owner     tokenHash
	expiresAt time.Time
}

// leaseTable holds the leases. It is pure: callers pass the time and hold the lock.
type leaseTable struct {
	maxWorkers   int
	term         time.Duration
	leases       map[string]*workerLease
	expiredCount float64
}

func newLeaseTable(most int, term time.Duration) *leaseTable {
	return &leaseTable{maxWorkers: most, term: term, leases: map[string]*workerLease{}}
}

// putLease registers or renews a worker; changed reports whether it is new or differs.
func (b *leaseTable) putLease(w Worker, by tokenHash, now time.Time) (changed bool, no *rejection) {
	l := b.leases[w.Name]
	if l != nil && l.owner != by {
		return false, newRejection(http.StatusConflict, "taken", "another token has registered a worker of this name: choose another name, or wait for its lease to end")
	}
	for _, o := range b.leases {
		if o.worker.Name != w.Name && hostPort(o.worker.URL) == hostPort(w.URL) {
			return false, newRejection(http.StatusConflict, "taken", fmt.Sprintf("worker %s is registered with the same URL: list each inference server once, or wait for its lease to end", o.worker.Name))
		}
	}
	if l == nil {
		if len(b.leases) >= b.maxWorkers {
			return false, newRejection(http.StatusServiceUnavailable, "full", fmt.Sprintf("%d workers are registered: raise registration.max_workers", b.maxWorkers))
		}
		l = &workerLease{owner: by}
		b.leases[w.Name] = l
		changed = true
	}
	changed = changed || !isSameWorker(&l.worker, &w)
	l.worker, l.expiresAt = w, now.Add(b.term)
	return changed, nil
}

// endLease ends a lease of the owner.
func (b *leaseTable) endLease(name string, by tokenHash) *rejection {
	l := b.leases[name]
	if l == nil || l.owner != by { // other tokens' workers are not revealed
		return newRejection(http.StatusNotFound, "unknown", "this token has registered no worker of this name")
	}
	delete(b.leases, name)
	return nil
}

// maxOversleep is the delay of an expiry check above which this process was suspended, and not the workers.
const maxOversleep = 2 * time.Second

// expireDue is expireLeases for a check that was due at a time. If it runs much later, because the process was
// suspended or its machine slept, no worker could renew: each one gets a full term.
func (b *leaseTable) expireDue(now, due time.Time) (names []string) {
	if due.IsZero() || now.Sub(due) <= maxOversleep {
		return b.expireLeases(now)
	}
	for _, l := range b.leases {
		l.expiresAt = now.Add(b.term)
	}
	return nil
}

// expireLeases ends the leases that were not renewed in time.
func (b *leaseTable) expireLeases(now time.Time) (names []string) {
	for n, l := range b.leases {
		if !now.Before(l.expiresAt) {
			names = append(names, n)
			delete(b.leases, n)
		}
	}
	b.expiredCount += float64(len(names))
	slices.Sort(names)
	return names
}

// nextExpiry is the end of the first lease to expire; zero without leases.
func (b *leaseTable) nextExpiry() (t time.Time) {
	for _, l := range b.leases {
		if t.IsZero() || l.expiresAt.Before(t) {
			t = l.expiresAt
		}
	}
	return t
}

// leasedWorkers lists the leased workers by name.
func (b *leaseTable) leasedWorkers() []Worker {
	var out []Worker
	for _, l := range b.leases {
		out = append(out, l.worker)
	}
	slices.SortFunc(out, func(x, y Worker) int { return strings.Compare(x.Name, y.Name) })
	return out
}
