package discover

import (
	"net/netip"
	"time"
)

const (
	// failureBurst is how many failures an address may make at once; one more is allowed per refill interval.
	failureBurst  = 10
	failureRefill = 6 * time.Second
	// maxLimitedAddrs bounds the addresses that are tracked.
	maxLimitedAddrs = 4096
)

// failureLimiter limits the failures per address that get a full answer. IPv6 counts by /64, which one machine may
// own.
type failureLimiter struct {
	clearedAt map[netip.Prefix]time.Time // when all of its failures are forgiven
}

// allowFailure records a failure; false when the address has made too many.
func (p *failureLimiter) allowFailure(a netip.Addr, now time.Time) bool {
	key := addrGroup(a)
	if p.clearedAt == nil {
		p.clearedAt = map[netip.Prefix]time.Time{}
	}
	until, known := p.clearedAt[key]
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) >= failureBurst*failureRefill {
		return false
	}
	if !known && len(p.clearedAt) >= maxLimitedAddrs {
		for k, t := range p.clearedAt {
			if !t.After(now) {
				delete(p.clearedAt, k)
			}
		}
		if len(p.clearedAt) >= maxLimitedAddrs {
			return false
		}
	}
	p.clearedAt[key] = until.Add(failureRefill)
	return true
}

func addrGroup(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for an invalid address
	return p
}
