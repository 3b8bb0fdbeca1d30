package dns

import (
	"encoding/binary"
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
