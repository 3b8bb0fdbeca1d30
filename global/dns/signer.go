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

// Signer signs a zone's answer sets on demand, with a SignatureCache. All nodes with the same keys make the same
// signatures in the same hour. It is immutable, except for its cache.
type Signer struct {
	zone     string
	apex     []byte // the zone's name in wire format
	keys     []*SigningKey
	keyIDs   []uint64 // of the keys, the zone and the lifetime: what a signature depends on besides its set
	keyTTL   uint32
	lifetime int64 // seconds
	rdata    map[uint16][][]byte
	cache    *SignatureCache
}

// SignerConfig holds the settings of a Signer.
type SignerConfig struct {
	// Zone is the apex, fully qualified and in lower case.
	Zone string
	// Keys are one, or two during a roll. The first signs answers, all sign the DNSKEY set.
	Keys []*SigningKey
	// KeyTTL is the TTL of DNSKEY, CDS and CDNSKEY, in seconds.
	KeyTTL uint32
	// Lifetime is the validity of a signature from its first use. At least three quarters of it remain whenever it is
	// sent.
	Lifetime time.Duration
	// CDS is the content of CDS and CDNSKEY, the request to the parent (RFC 7344, RFC 8078).
	CDS CDSAction
	// Cache holds the signatures.
	Cache *SignatureCache
}

// CDSAction is the request to the parent zone.
type CDSAction uint8

// The requests.
const (
	CDSNone    CDSAction = iota // no request
	CDSPublish                  // publish the DS of the first key
	CDSDelete                   // delete the DS
)

// NewSigner creates a signer.
func NewSigner(c SignerConfig) (*Signer, error) {
	s := &Signer{zone: c.Zone, apex: wireName(c.Zone), keys: c.Keys, keyTTL: c.KeyTTL, lifetime: int64(c.Lifetime / time.Second), cache: c.Cache}
	switch {
	case s.apex == nil:
		return nil, fmt.Errorf("%q is not a valid zone name", c.Zone)
	case len(c.Keys) == 0 || c.Cache == nil || s.lifetime < int64(minLifetime/time.Second):
		return nil, errors.New("a signer needs a key, a signature cache and a lifetime")
	}
	s.rdata = map[uint16][][]byte{}
	for _, k := range c.Keys {
		s.rdata[dns.TypeDNSKEY] = append(s.rdata[dns.TypeDNSKEY], k.data)
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(append(slices.Clone(k.data), s.apex...), uint64(s.lifetime)))
		s.keyIDs = append(s.keyIDs, binary.BigEndian.Uint64(sum[:]))
	}
	switch c.CDS {
	case CDSPublish:
		s.rdata[dns.TypeCDS], s.rdata[dns.TypeCDNSKEY] = [][]byte{c.Keys[0].dsData(s.apex)}, [][]byte{c.Keys[0].data}
	case CDSDelete: // RFC 8078, 4, as its erratum 5049 writes it
		s.rdata[dns.TypeCDS], s.rdata[dns.TypeCDNSKEY] = [][]byte{{0, 0, 0, 0, 0}}, [][]byte{{0, 0, keyProtocol, 0, 0}}
	}
	return s, nil
}

// minLifetime is the shortest lifetime of signatures.
const minLifetime = time.Minute

// inceptionSkew is how far a resolver's clock may be behind, in seconds: a signature becomes valid that long before
// its first use.
const inceptionSkew = 3600

// rrsigLen is an RRSIG record's length when its owner is a pointer.
func (s *Signer) rrsigLen() int { return recordHeadLen + 18 + len(s.apex) + signatureSize }

// validityWindow returns when a signature is sent and when it is valid, in seconds since 1970. A signature is
// replaced a quarter of its lifetime after its first use. Sets are replaced at different times, to spread the load of
// signing.
func (s *Signer) validityWindow(t *answerSet, now int64) (from, until, inception, expiration int64) {
	h := fnv.New32a()
	h.Write(t.owner)
	h.Write([]byte{byte(t.rtype >> 8), byte(t.rtype)})
	step := s.lifetime / 4
	jitter := int64(h.Sum32()) % step
	from = (now+jitter)/step*step - jitter
	return from, from + step, from - inceptionSkew, from + s.lifetime
}

// cachePolicy selects the table of a signature.
type cachePolicy uint8

const (
	cacheSet    cachePolicy = iota // with those of existing names
	cacheAbsent                    // in the separate table
	cacheNone
)

// findSignature returns the cached signature of a set by the first key, or nil.
func (s *Signer) findSignature(t *answerSet, now int64) []byte {
	return s.cache.findSignature(s.cache.sets, s.keyIDs[0], t, now)
}

var errSigningRate = errors.New("too many signatures for nonexistent names")

// signatureFor returns a set's RRSIG data by one of the keys, cached or new. data holds the records' data in wire
// format, with all names in lower case.
func (s *Signer) signatureFor(k cachePolicy, key int, t *answerSet, data [][]byte, now time.Time) ([]byte, error) {
	table := s.cache.sets
	if k == cacheAbsent {
		table = s.cache.absent
	}
	if k != cacheNone {
		if sig := s.cache.findSignature(table, s.keyIDs[key], t, now.Unix()); sig != nil {
			return sig, nil
		}
	}
	if k != cacheSet && !s.cache.allowUncached(now) {
		return nil, errSigningRate
	}
	sig, err := s.makeSignature(key, t, data, now.Unix())
	if err != nil {
		return nil, err
	}
	s.cache.made.Add(1)
	if k != cacheNone {
		s.cache.storeSignature(table, s.keyIDs[key], t, sig, now.Unix())
	}
	return sig.data, nil
}

// makeSignature signs a set (RFC 4034, 3.1.8.1).
func (s *Signer) makeSignature(key int, t *answerSet, data [][]byte, now int64) (*cachedSignature, error) {
	owner := wireName(string(t.owner))
	if owner == nil {
		return nil, fmt.Errorf("%q is not a valid domain name", t.owner)
	}
	from, until, inception, expiration := s.validityWindow(t, now)
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 512), t.rtype)
	b = append(b, keyAlgorithm, countLabels(owner))
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
	out, err := s.keys[key].signHash(slices.Clone(b[:head]), sum[:])
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", t.owner, err)
	}
	return &cachedSignature{sendFrom: from, sendUntil: until, data: out}, nil
}

// countLabels returns the number of labels of a name in wire format, without a wildcard label (RFC 4034, 3.1.3).
func countLabels(name []byte) byte {
	n := byte(0)
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		n++
	}
	if len(name) > 1 && name[0] == 1 && name[1] == '*' {
		n--
	}
	return n
}
