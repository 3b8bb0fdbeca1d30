package uplink

import (
	"errors"
	"sync"
	"time"
)

const (
	maxTrackedPeers       = 1024
	limitAfterFailures    = 100 // failures, whose count halves every failureHalfLife
	failureHalfLife       = 30 * time.Second
	limitedHandshakeRate  = 2 // handshakes per second that a limited address may still begin
	limitedHandshakeBurst = 4
	reasonHandshakeLimit  = "handshake_limit" // a handshake refused because of many failures of its address
	failureMemory         = 10 * time.Minute
)

var errHandshakeLimit = errors.New("too many refused or broken sessions from this address")

// handshakeLimiter rate-limits TLS handshakes from addresses whose sessions keep failing: a handshake is the most
// expensive operation that an unauthenticated peer can trigger. Existing sessions are not affected; other peers at
// the same address reconnect a little later.
type handshakeLimiter struct {
	mu        sync.Mutex
	byAddress map[string]*failingPeer // by handshakeSource
}

type failingPeer struct {
	failures  float64
	updatedAt time.Time
	bucket    messageBucket
}

// recordFailure counts a failure.
func (p *handshakeLimiter) recordFailure(ip string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.byAddress[ip]
	if o == nil {
		if p.byAddress == nil {
			p.byAddress = make(map[string]*failingPeer)
		}
		if len(p.byAddress) >= maxTrackedPeers && !p.evictQuietPeer(now) {
			return
		}
		o = &failingPeer{updatedAt: now, bucket: newMessageBucket(limitedHandshakeRate, limitedHandshakeBurst)}
		p.byAddress[ip] = o
	}
	o.decayFailures(now)
	o.failures++
}

// allowHandshake returns false for a handshake above the limit of its address.
func (p *handshakeLimiter) allowHandshake(ip string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.byAddress[ip]
	if o == nil {
		return true
	}
	if o.decayFailures(now); o.failures < limitAfterFailures {
		return true
	}
	return o.bucket.takeToken(now)
}

func (o *failingPeer) decayFailures(now time.Time) {
	for ; now.Sub(o.updatedAt) >= failureHalfLife; o.updatedAt = o.updatedAt.Add(failureHalfLife) {
		if o.failures /= 2; o.failures < 0.01 || now.Sub(o.updatedAt) > failureMemory {
			o.failures, o.updatedAt = 0, now
			return
		}
	}
}

// evictQuietPeer frees a place: of peers without recent failures, or else of any peer.
func (p *handshakeLimiter) evictQuietPeer(now time.Time) bool {
	for ip, o := range p.byAddress {
		if o.decayFailures(now); o.failures < limitAfterFailures/2 {
			delete(p.byAddress, ip)
			return true
		}
	}
	return false
}
