package dns

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Signer signs a zone's answer sets as they are asked for, and keeps what it has signed. All nodes with the same keys and
// the same hour make the same signatures. It is immutable, but for its Signatures.
type Signer struct {
	zone     string
	apex     []byte // the zone's name in wire format
	keys     []*Key
	ids      []uint64 // of the keys, the zone and the lifetime: what a signature depends on beside its set
	keyTTL   uint32
	lifetime int64 // seconds
	rdata    map[uint16][][]byte
	kept     *Signatures
}

// SignerConfig says how a zone is signed.
type SignerConfig struct {
	// Zone is the apex, fully qualified and in lower case.
	Zone string
	// Keys are one, or two during a roll. The first signs answers, all sign the set of keys.
	Keys []*Key
	// KeyTTL is the TTL of DNSKEY, CDS and CDNSKEY, in seconds.
	KeyTTL uint32
	// Lifetime is how long a signature is valid from when it begins to be sent. Three quarters of it are left at the least.
	Lifetime time.Duration
	// Parent is what CDS and CDNSKEY tell the parent to do (RFC 7344, RFC 8078).
	Parent Wish
	// Kept holds the signatures that were made.
	Kept *Signatures
}

// Wish is what the parent zone is asked for.
type Wish uint8

// The wishes.
const (
	NoWish   Wish = iota // say nothing
	ShowDS               // show the DS of the first key
	RemoveDS             // show none
)

// NewSigner makes a signer.
func NewSigner(c SignerConfig) (*Signer, error) {
	s := &Signer{zone: c.Zone, apex: wireName(c.Zone), keys: c.Keys, keyTTL: c.KeyTTL, lifetime: int64(c.Lifetime / time.Second), kept: c.Kept}
	switch {
	case s.apex == nil:
		return nil, fmt.Errorf("%q is no name of a zone", c.Zone)
	case len(c.Keys) == 0 || c.Kept == nil || s.lifetime < int64(minLifetime/time.Second):
		return nil, errors.New("a signer needs a key, a store of signatures and a lifetime for them")
	}
	s.rdata = map[uint16][][]byte{}
	for _, k := range c.Keys {
		s.rdata[dns.TypeDNSKEY] = append(s.rdata[dns.TypeDNSKEY], k.data)
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(append(slices.Clone(k.data), s.apex...), uint64(s.lifetime)))
		s.ids = append(s.ids, binary.BigEndian.Uint64(sum[:]))
	}
	switch c.Parent {
	case ShowDS:
		s.rdata[dns.TypeCDS], s.rdata[dns.TypeCDNSKEY] = [][]byte{c.Keys[0].ds(s.apex)}, [][]byte{c.Keys[0].data}
	case RemoveDS: // RFC 8078, 4, as its erratum 5049 writes it
		s.rdata[dns.TypeCDS], s.rdata[dns.TypeCDNSKEY] = [][]byte{{0, 0, 0, 0, 0}}, [][]byte{{0, 0, keyProtocol, 0, 0}}
	}
	return s, nil
}

// minLifetime is the shortest that signatures may live.
const minLifetime = time.Minute

// skew is how much a resolver's clock may be behind: so much before it is sent, a signature begins to be valid.
const skew = 3600

// sizeRRSIG is an RRSIG record's length when its owner is a pointer.
func (s *Signer) sizeRRSIG() int { return sizeHead + 18 + len(s.apex) + signatureSize }

// window is when a signature is sent and when it is valid, in seconds since 1970. A quarter of its lifetime after it
// began to be sent the next one takes its place; sets change over at different times, so that not all are signed at once.
func (s *Signer) window(t *answerSet, now int64) (from, until, inception, expiration int64) {
	h := fnv.New32a()
	h.Write(t.owner)
	h.Write([]byte{byte(t.rtype >> 8), byte(t.rtype)})
	step := s.lifetime / 4
	jitter := int64(h.Sum32()) % step
	from = (now+jitter)/step*step - jitter
	return from, from + step, from - skew, from + s.lifetime
}

// keeping says where a signature is kept.
type keeping uint8

const (
	keepSet    keeping = iota // with those of what exists
	keepAbsent                // apart
	keepNot
)

// find is the signature of a set by the first key, or nil where it has to be made.
func (s *Signer) find(t *answerSet, now int64) []byte {
	return s.kept.find(s.kept.sets, s.ids[0], t, now)
}

var errTooMany = errors.New("too many answers have to be signed for themselves alone")

// signature is a set's RRSIG data by one of the keys, made or found. data are the records' in wire format, all names in
// them in lower case.
func (s *Signer) signature(k keeping, key int, t *answerSet, data [][]byte, now time.Time) ([]byte, error) {
	table := s.kept.sets
	if k == keepAbsent {
		table = s.kept.absent
	}
	if k != keepNot {
		if sig := s.kept.find(table, s.ids[key], t, now.Unix()); sig != nil {
			return sig, nil
		}
	}
	if k != keepSet && !s.kept.spare(now) {
		return nil, errTooMany
	}
	sig, err := s.make(key, t, data, now.Unix())
	if err != nil {
		return nil, err
	}
	s.kept.made.Add(1)
	if k != keepNot {
		s.kept.keep(table, s.ids[key], t, sig, now.Unix())
	}
	return sig.data, nil
}

// make signs a set (RFC 4034, 3.1.8.1).
func (s *Signer) make(key int, t *answerSet, data [][]byte, now int64) (*signature, error) {
	owner := wireName(string(t.owner))
	if owner == nil {
		return nil, fmt.Errorf("%q is no name", t.owner)
	}
	from, until, inception, expiration := s.window(t, now)
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 512), t.rtype)
	b = append(b, keyAlgorithm, labels(owner))
	b = binary.BigEndian.AppendUint32(b, t.ttl)
	b = binary.BigEndian.AppendUint32(b, uint32(expiration))
	b = binary.BigEndian.AppendUint32(b, uint32(inception))
	b = binary.BigEndian.AppendUint16(b, s.keys[key].tag)
	b = append(b, s.apex...)
	head := len(b)
	data = slices.Clone(data)
	slices.SortFunc(data, slices.Compare)
	for _, d := range slices.CompactFunc(data, slices.Equal) {
		b = append(b, owner...)
		b = binary.BigEndian.AppendUint16(b, t.rtype)
		b = append(b, 0, dns.ClassINET)
		b = binary.BigEndian.AppendUint32(b, t.ttl)
		b = binary.BigEndian.AppendUint16(b, uint16(len(d)))
		b = append(b, d...)
	}
	sum := sha256.Sum256(b)
	out, err := s.keys[key].sign(slices.Clone(b[:head]), sum[:])
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", t.owner, err)
	}
	return &signature{from: from, until: until, data: out}, nil
}

// labels counts those of a name in wire format, without a wildcard's (RFC 4034, 3.1.3).
func labels(name []byte) byte {
	n := byte(0)
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		n++
	}
	if len(name) > 1 && name[0] == 1 && name[1] == '*' {
		n--
	}
	return n
}
