package discover

import (
	"net/netip"
	"time"
)

const (
	// burst failures an address may make at once, and one more each refill.
	burst  = 10
	refill = 6 * time.Second
	// maxPatience bounds the addresses that are told apart.
	maxPatience = 4096
)

// patience is how many failures more an address may be answered in full. IPv6 counts by /64, which one machine may have
// to itself.
type patience struct {
	spent map[netip.Prefix]time.Time // when all of its failures are forgotten
}

// fail books a failure; false when the address has made too many.
func (p *patience) fail(a netip.Addr, now time.Time) bool {
	key := family(a)
	if p.spent == nil {
		p.spent = map[netip.Prefix]time.Time{}
	}
	until, known := p.spent[key]
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) >= burst*refill {
		return false
	}
	if !known && len(p.spent) >= maxPatience {
		for k, t := range p.spent {
			if !t.After(now) {
				delete(p.spent, k)
			}
		}
		if len(p.spent) >= maxPatience {
			return false
		}
	}
	p.spent[key] = until.Add(refill)
	return true
}

func family(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for what is no address
	return p
}
