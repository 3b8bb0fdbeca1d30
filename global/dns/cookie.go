package dns

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// Secret makes and checks server cookies. All nodes that answer at one address hold the same.
type Secret [16]byte

// String hides the secret.
func (Secret) String() string { return "dns cookie secret" }

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// cookie is a COOKIE option (RFC 7873), of a query or of its answer.
type cookie struct {
	client bool // the client's eight octets are there
	server bool // and so is a server cookie of ours' length
	data   [cookieLen]byte
}

// Lengths of a COOKIE option's data, in octets.
const (
	clientCookieLen = 8
	cookieLen       = clientCookieLen + 16 // with the server cookie of RFC 9018
	maxCookieLen    = clientCookieLen + 32
)

// read takes over the option's data and reports whether it is well formed (RFC 7873, 5.2.2). Of several options the
// first counts.
func (c *cookie) read(data []byte) bool {
	if n := len(data); n != clientCookieLen && (n < clientCookieLen+8 || n > maxCookieLen) {
		return false
	}
	if !c.client {
		c.client, c.server = true, len(data) == cookieLen
		copy(c.data[:], data)
	}
	return true
}

func (c *cookie) append(b []byte) []byte {
	return append(append(b, 0, dns.EDNS0COOKIE, 0, cookieLen), c.data[:]...)
}

// Times of a server cookie (RFC 9018, 4.3), in seconds.
const (
	cookieLife  = 3600
	cookieFresh = 1800 // older ones are made anew
	cookieAhead = 300  // that another node's clock may be
)

// cookieVersion is the only one that there is (RFC 9018, 4.2).
const cookieVersion = 1

// check judges the query's cookie and returns the one to answer with. proven tells that the client is where it says,
// because it was given this cookie there. Without secrets there are no cookies: nothing is answered and nothing proven.
func (c *cookie) check(secrets []Secret, from netip.Addr, now time.Time) (reply cookie, proven bool) {
	if !c.client || len(secrets) == 0 {
		return cookie{}, false
	}
	at := uint32(now.Unix())
	if c.server && c.data[8] == cookieVersion {
		// Serial arithmetic: the stamp wraps in 2106.
		age := int32(at - binary.BigEndian.Uint32(c.data[12:]))
		for i := range secrets {
			if age > cookieLife || age < -cookieAhead {
				break
			}
			if c.hash(&secrets[i], from) == binary.LittleEndian.Uint64(c.data[16:]) {
				proven = true
				if i == 0 && age < cookieFresh && c.data[9]|c.data[10]|c.data[11] == 0 {
					return *c, true
				}
				break
			}
		}
	}
	reply = *c
	reply.server = true
	reply.data[8], reply.data[9], reply.data[10], reply.data[11] = cookieVersion, 0, 0, 0
	binary.BigEndian.PutUint32(reply.data[12:], at)
	binary.LittleEndian.PutUint64(reply.data[16:], reply.hash(&secrets[0], from))
	return reply, proven
}

// hash is SipHash-2-4 of client cookie, version, reserved, stamp and address (RFC 9018, 4.4).
func (c *cookie) hash(secret *Secret, from netip.Addr) uint64 {
	var msg [32]byte
	n := copy(msg[:], c.data[:16])
	if from = from.Unmap(); from.Is4() {
		a := from.As4()
		n += copy(msg[n:], a[:])
	} else {
		a := from.As16()
		n += copy(msg[n:], a[:])
	}
	return sipHash(secret, msg[:n])
}

// sipHash is SipHash-2-4 (Aumasson and Bernstein 2012) with a 64-bit result.
func sipHash(key *Secret, msg []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(msg)) << 56
	for len(msg) >= 8 {
		s.absorb(binary.LittleEndian.Uint64(msg))
		msg = msg[8:]
	}
	for i, b := range msg {
		last |= uint64(b) << (8 * i)
	}
	s.absorb(last)
	s.v2 ^= 0xff
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) absorb(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

func (s *sipState) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}
