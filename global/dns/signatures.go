package dns

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// Signatures keeps those that were made, for signers that come and go with the spec and the keys: a set of records that
// was signed once is not signed again while its signature is fresh. Its tables are fixed and never grow: of sets that
// fall on the same places, the one that was used longest ago goes. Nobody waits for anybody in it.
type Signatures struct {
	seed   maphash.Seed
	sets   []atomic.Pointer[signature]
	absent []atomic.Pointer[signature] // apart, so that names which somebody makes up push out none that exist
	clock  atomic.Int64                // of the bound on what is signed for one answer alone, see spare

	made, refused atomic.Uint64
}

// Bounds of what is kept. An entry takes some 300 bytes: 20 MiB when all of them are in use.
const (
	signatureSets   = 1 << 16
	signatureAbsent = 1 << 12
	signatureWays   = 4
)

// signsPerSecond bounds what is signed for one answer alone: names that do not exist, and explanations. At some 60 µs
// each it is an eighth of a processor.
const signsPerSecond = 2000

// NewSignatures makes an empty store.
func NewSignatures() *Signatures {
	return &Signatures{
		seed: maphash.MakeSeed(), sets: make([]atomic.Pointer[signature], signatureSets),
		absent: make([]atomic.Pointer[signature], signatureAbsent),
	}
}

// Made is how many signatures were made, and Refused how many would have been too many.
func (c *Signatures) Made() uint64 { return c.made.Load() }

// Refused is how many answers failed because too many had to be signed for themselves alone.
func (c *Signatures) Refused() uint64 { return c.refused.Load() }

// answerSet is what a signature is made for and found by.
type answerSet struct {
	owner       []byte // fully qualified, in lower case
	rtype       uint16
	ttl         uint32 // the original
	digest      digest // of the data, or of the whole set that first and keep take a part of
	first, keep uint16
}

// signature is the data of an RRSIG record, and until when it may be sent.
type signature struct {
	key         uint64
	owner       string
	rtype       uint16
	ttl         uint32
	digest      digest
	first, keep uint16
	from, until int64 // seconds since 1970
	used        atomic.Int64
	data        []byte
}

func (s *signature) of(key uint64, t *answerSet) bool {
	return s.key == key && s.rtype == t.rtype && s.ttl == t.ttl && s.first == t.first && s.keep == t.keep &&
		s.digest == t.digest && s.owner == string(t.owner)
}

// place is where a set's signatures may stand. The seed is this process's own, so that nobody can aim at another's.
func (c *Signatures) place(table []atomic.Pointer[signature], key uint64, t *answerSet) []atomic.Pointer[signature] {
	h := maphash.Bytes(c.seed, t.owner)
	h ^= key + uint64(t.rtype)<<48 + uint64(t.ttl)<<16 + uint64(t.first)<<8 + uint64(t.keep)
	h ^= uint64(t.digest[0])<<40 + uint64(t.digest[1])<<32 + uint64(t.digest[2])<<24
	h *= 0x9e3779b97f4a7c15
	base := h >> 32 % uint64(len(table)/signatureWays) * signatureWays
	return table[base : base+signatureWays]
}

// find returns the data of a signature that is fresh, or nil.
func (c *Signatures) find(table []atomic.Pointer[signature], key uint64, t *answerSet, now int64) []byte {
	ways := c.place(table, key, t)
	for i := range ways {
		s := ways[i].Load()
		if s == nil || !s.of(key, t) {
			continue
		}
		if now < s.from || now >= s.until {
			return nil
		}
		if s.used.Load() != now {
			s.used.Store(now)
		}
		return s.data
	}
	return nil
}

// keep puts a signature in the place of its forerunner, or of the one that was used longest ago.
func (c *Signatures) keep(table []atomic.Pointer[signature], key uint64, t *answerSet, s *signature, now int64) {
	s.key, s.owner, s.rtype, s.ttl, s.digest, s.first, s.keep = key, string(t.owner), t.rtype, t.ttl, t.digest, t.first, t.keep
	s.used.Store(now)
	ways := c.place(table, key, t)
	slot, least := &ways[0], int64(1<<62)
	for i := range ways {
		old := ways[i].Load()
		if old != nil && old.of(key, t) {
			slot = &ways[i]
			break
		}
		used := int64(-1)
		if old != nil {
			used = old.used.Load()
		}
		if used < least {
			slot, least = &ways[i], used
		}
	}
	slot.Store(s)
}

// spare reports whether one more answer may be signed for itself alone (GCRA).
func (c *Signatures) spare(now time.Time) bool {
	const cost, burst = int64(time.Second / signsPerSecond), int64(time.Second)
	for at := now.UnixNano(); ; {
		clock := c.clock.Load()
		start := max(clock, at)
		if start-at > 2*burst { // the machine's clock went back
			start = at
		}
		if start-at > burst {
			c.refused.Add(1)
			return false
		}
		if c.clock.CompareAndSwap(clock, start+cost) {
			return true
		}
	}
}
