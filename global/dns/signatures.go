package dns

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// SignatureCache keeps signatures for Signers, which are replaced when the spec or the keys change: a record set is
// not signed again while its signature is fresh. Its tables have a fixed size. Of sets that fall on the same slots,
// the least recently used is dropped. It is lock-free.
type SignatureCache struct {
	seed          maphash.Seed
	sets          []atomic.Pointer[cachedSignature]
	absent        []atomic.Pointer[cachedSignature] // separate, so that invented names evict no signatures of existing ones
	uncachedClock atomic.Int64                      // for the bound on single-use signatures, see allowUncached

	made, refused atomic.Uint64
}

// Bounds of the cache. An entry takes some 300 bytes: 20 MiB when all of them are in use.
const (
	signatureSets   = 1 << 16
	signatureAbsent = 1 << 12
	signatureWays   = 4
)

// uncachedSignsPerSecond bounds single-use signatures: for names that do not exist, and for explanations. At some 60
// µs each this is an eighth of a processor.
const uncachedSignsPerSecond = 2000

// NewSignatureCache returns an empty cache.
func NewSignatureCache() *SignatureCache {
	return &SignatureCache{
		seed: maphash.MakeSeed(), sets: make([]atomic.Pointer[cachedSignature], signatureSets),
		absent: make([]atomic.Pointer[cachedSignature], signatureAbsent),
	}
}

// Made is the number of signatures made.
func (c *SignatureCache) Made() uint64 { return c.made.Load() }

// Refused is the number of answers that failed because of the bound on single-use signatures.
func (c *SignatureCache) Refused() uint64 { return c.refused.Load() }

// answerSet is a record set to be signed, and the cache key of its signature.
type answerSet struct {
	owner                []byte // fully qualified, in lower case
	rtype                uint16
	ttl                  uint32     // the original
	digest               dataDigest // of the data, or of the whole set of which first and keep select a part
	firstAddr, keepAddrs uint16
}

// cachedSignature is the data of an RRSIG record and the time until which it may be sent.
type cachedSignature struct {
	key                  uint64
	owner                string
	rtype                uint16
	ttl                  uint32
	digest               dataDigest
	firstAddr, keepAddrs uint16
	sendFrom, sendUntil  int64 // seconds since 1970
	lastUsed             atomic.Int64
	data                 []byte
}

func (s *cachedSignature) matchesSet(key uint64, t *answerSet) bool {
	return s.key == key && s.rtype == t.rtype && s.ttl == t.ttl && s.firstAddr == t.firstAddr && s.keepAddrs == t.keepAddrs &&
		s.digest == t.digest && s.owner == string(t.owner)
}

// findWays returns the slots in which a set's signatures may be. The seed is random per process, so that collisions
// cannot be constructed.
func (c *SignatureCache) findWays(table []atomic.Pointer[cachedSignature], key uint64, t *answerSet) []atomic.Pointer[cachedSignature] {
	h := maphash.Bytes(c.seed, t.owner)
	h ^= key + uint64(t.rtype)<<48 + uint64(t.ttl)<<16 + uint64(t.firstAddr)<<8 + uint64(t.keepAddrs)
	h ^= uint64(t.digest[0])<<40 + uint64(t.digest[1])<<32 + uint64(t.digest[2])<<24
	h *= 0x9e3779b97f4a7c15
	base := h >> 32 % uint64(len(table)/signatureWays) * signatureWays
	return table[base : base+signatureWays]
}

// findSignature returns the data of a fresh signature, or nil.
func (c *SignatureCache) findSignature(table []atomic.Pointer[cachedSignature], key uint64, t *answerSet, now int64) []byte {
	ways := c.findWays(table, key, t)
	for i := range ways {
		s := ways[i].Load()
		if s == nil || !s.matchesSet(key, t) {
			continue
		}
		if now < s.sendFrom || now >= s.sendUntil {
			return nil
		}
		if s.lastUsed.Load() != now {
			s.lastUsed.Store(now)
		}
		return s.data
	}
	return nil
}

// storeSignature stores a signature in place of its predecessor, or of the least recently used one.
func (c *SignatureCache) storeSignature(table []atomic.Pointer[cachedSignature], key uint64, t *answerSet, s *cachedSignature, now int64) {
	s.key, s.owner, s.rtype, s.ttl, s.digest, s.firstAddr, s.keepAddrs = key, string(t.owner), t.rtype, t.ttl, t.digest, t.firstAddr, t.keepAddrs
	s.lastUsed.Store(now)
	ways := c.findWays(table, key, t)
	slot, least := &ways[0], int64(1<<62)
	for i := range ways {
		old := ways[i].Load()
		if old != nil && old.matchesSet(key, t) {
			slot = &ways[i]
			break
		}
		used := int64(-1)
		if old != nil {
			used = old.lastUsed.Load()
		}
		if used < least {
			slot, least = &ways[i], used
		}
	}
	slot.Store(s)
}

// allowUncached reports whether one more single-use signature may be made (GCRA).
func (c *SignatureCache) allowUncached(now time.Time) bool {
	const cost, burst = int64(time.Second / uncachedSignsPerSecond), int64(time.Second)
	for at := now.UnixNano(); ; {
		clock := c.uncachedClock.Load()
		start := max(clock, at)
		if start-at > 2*burst { // the system clock was set back
			start = at
		}
		if start-at > burst {
			c.refused.Add(1)
			return false
		}
		if c.uncachedClock.CompareAndSwap(clock, start+cost) {
			return true
		}
	}
}
