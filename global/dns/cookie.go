package dns

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// CookieSecret creates and verifies server cookies. All nodes that answer at one address have the same.
type CookieSecret [16]byte

// String hides the secret.
func (CookieSecret) String() string { return "dns cookie secret" }

// GoString hides the secret.
func (s CookieSecret) GoString() string { return s.String() }

// cookie is a COOKIE option (RFC 7873), of a query or of its answer.
type cookie struct {
	hasClient bool // the client's eight octets are present
	hasServer bool // and so is a server cookie of our length
	data      [cookieLen]byte
}

// Lengths of a COOKIE option's data, in octets.
const (
	clientCookieLen = 8
	cookieLen       = clientCookieLen + 16 // with the server cookie of RFC 9018
	maxCookieLen    = clientCookieLen + 32
)

// parseOption reads the option's data and reports whether it is well formed (RFC 7873, 5.2.2). Of several options the
// first counts.
func (c *cookie) parseOption(data []byte) bool {
	if n := len(data); n != clientCookieLen && (n < clientCookieLen+8 || n > maxCookieLen) {
		return false
	}
	if !c.hasClient {
		c.hasClient, c.hasServer = true, len(data) == cookieLen
		copy(c.data[:], data)
	}
	return true
}

func (c *cookie) appendOption(b []byte) []byte {
	return append(append(b, 0, dns.EDNS0COOKIE, 0, cookieLen), c.data[:]...)
}

// Times of a server cookie (RFC 9018, 4.3), in seconds.
const (
	cookieLifetime   = 3600
	cookieRenewAfter = 1800 // older ones are replaced by new ones
	cookieMaxAhead   = 300  // the largest difference of another node's clock
)

// cookieVersion is the only defined version (RFC 9018, 4.2).
const cookieVersion = 1

// checkCookie verifies the query's cookie and returns the one for the answer. proven is set if the client returned a
// cookie that was issued to its address, so the address is not spoofed. Without secrets there are no cookies: none is
// returned and proven is false.
func (c *cookie) checkCookie(secrets []CookieSecret, from netip.Addr, now time.Time) (reply cookie, proven bool) {
	if !c.hasClient || len(secrets) == 0 {
		return cookie{}, false
	}
	at := uint32(now.Unix())
	if c.hasServer && c.data[8] == cookieVersion {
		// Serial number arithmetic: the timestamp wraps in 2106.
		age := int32(at - binary.BigEndian.Uint32(c.data[12:]))
		for i := range secrets {
			if age > cookieLifetime || age < -cookieMaxAhead {
				break
			}
			if c.computeHash(&secrets[i], from) == binary.LittleEndian.Uint64(c.data[16:]) {
				proven = true
				if i == 0 && age < cookieRenewAfter && c.data[9]|c.data[10]|c.data[11] == 0 {
					return *c, true
				}
				break
			}
		}
	}
	reply = *c
	reply.hasServer = true
	reply.data[8], reply.data[9], reply.data[10], reply.data[11] = cookieVersion, 0, 0, 0
	binary.BigEndian.PutUint32(reply.data[12:], at)
	binary.LittleEndian.PutUint64(reply.data[16:], reply.computeHash(&secrets[0], from))
	return reply, proven
}

// computeHash is SipHash-2-4 of client cookie, version, reserved, stamp and address (RFC 9018, 4.4).
func (c *cookie) computeHash(secret *CookieSecret, from netip.Addr) uint64 {
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
func sipHash(key *CookieSecret, msg []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(msg)) << 56
	for len(msg) >= 8 {
		s.absorbWord(binary.LittleEndian.Uint64(msg))
		msg = msg[8:]
	}
	for i, b := range msg {
		last |= uint64(b) << (8 * i)
	}
	s.absorbWord(last)
	s.v2 ^= 0xff
	for range 4 {
		s.sipRound()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) absorbWord(m uint64) {
	s.v3 ^= m
	s.sipRound()
	s.sipRound()
	s.v0 ^= m
}

func (s *sipState) sipRound() {
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
