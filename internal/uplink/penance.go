package uplink

import (
	"errors"
	"sync"
	"time"
)

const (
	maxOffenders   = 1024
	penanceAfter   = 100 // offences, each of which counts half after penanceHalf
	penanceHalf    = 30 * time.Second
	penanceRate    = 2 // handshakes a second that an address may still begin
	penanceBurst   = 4
	reasonPenance  = "penance" // a handshake that an address of many offences was not given
	penanceForever = 10 * time.Minute
)

var errPenance = errors.New("too many refused or broken sessions from this address")

// penance keeps addresses whose sessions are refused or ended again and again from costing a handshake each time, which
// is the dearest thing that a stranger can ask for. Sessions that are there are never touched; who shares the address
// comes back a little later.
type penance struct {
	mu   sync.Mutex
	that map[string]*offender // by sourceOf its address
}

type offender struct {
	count float64
	at    time.Time
	may   allowance
}

// offend notes an offence.
func (p *penance) offend(ip string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.that[ip]
	if o == nil {
		if p.that == nil {
			p.that = make(map[string]*offender)
		}
		if len(p.that) >= maxOffenders && !p.forget(now) {
			return
		}
		o = &offender{at: now, may: newAllowance(penanceRate, penanceBurst)}
		p.that[ip] = o
	}
	o.decay(now)
	o.count++
}

// allows is false for a handshake that the address is not given.
func (p *penance) allows(ip string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.that[ip]
	if o == nil {
		return true
	}
	if o.decay(now); o.count < penanceAfter {
		return true
	}
	return o.may.take(now)
}

func (o *offender) decay(now time.Time) {
	for ; now.Sub(o.at) >= penanceHalf; o.at = o.at.Add(penanceHalf) {
		if o.count /= 2; o.count < 0.01 || now.Sub(o.at) > penanceForever {
			o.count, o.at = 0, now
			return
		}
	}
}

// forget makes room: those that did nothing lately, or at last anybody.
func (p *penance) forget(now time.Time) bool {
	for ip, o := range p.that {
		if o.decay(now); o.count < penanceAfter/2 {
			delete(p.that, ip)
			return true
		}
	}
	return false
}
