// Package ticket mints and opens redirect tickets: short signed strings that the global tier puts into the URL
// of a 307, because most clients drop Authorization when a redirect leads to another host. A ticket names the
// authenticated tenant, the service, the region, and its expiry.
//
// MintTicket and OpenTicket create and verify a RedirectTicket. SeenTickets detects reuse within one gateway;
// another gateway of the region would accept the ticket once more. The package never decides what the tenant
// may do. A ticket contains no key or prompt, and its fields are signed, not encrypted.
package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"
)

// Reasons for which OpenTicket refuses a ticket.
var (
	ErrMalformed    = errors.New("ticket is malformed")
	ErrForged       = errors.New("ticket is not signed by a key in use")
	ErrExpired      = errors.New("ticket has expired")
	ErrExpiryTooFar = errors.New("ticket is good for longer than any is minted for: the clocks are too far apart")
)

// MinKeyBytes is the shortest key, in bytes, that signs or opens.
const MinKeyBytes = 16

const (
	versionDirect  = 1 // without a client, as in earlier releases
	versionProxied = 2 // with a client
	maxFieldBytes  = 255
	macBytes       = 16                                   // half of SHA-256, allowed by RFC 2104 section 5
	headerBytes    = 1 + 8 + 8                            // version, expiry, nonce
	minTicketBytes = headerBytes + 3 + macBytes           // with three empty fields
	maxTicketBytes = minTicketBytes + 1 + 4*maxFieldBytes // in bytes
	maxTextChars   = (maxTicketBytes*8 + 5) / 6           // in base64 characters
	maxKeysTried   = 8                                    // each costs a hash
	maxUnixSeconds = 1<<40 - 1                            // seconds; the year 36812, the largest that time.Time supports
	signingDomain  = "spillway redirect ticket\x00"       // separates these signatures from other uses of the key
)

// RedirectTicket is the content of a ticket.
type RedirectTicket struct {
	Tenant  string    // the authenticated tenant
	Service string    // the name of the service that the client requested
	Region  string    // the target of the redirect
	Expires time.Time // first second at which it is invalid; fractions are dropped
	Nonce   uint64    // distinguishes tickets of the same second
	Client  string    // the client's address, if the global tier forwards its request; empty: the client connects itself
}

// MintTicket signs t with key. It returns "" if t cannot be encoded: a field over 255 bytes, an expiry before
// 1970, or a key shorter than MinKeyBytes.
func MintTicket(key []byte, t RedirectTicket) string {
	if len(key) < MinKeyBytes || t.Expires.Unix() < 0 || t.Expires.Unix() > maxUnixSeconds {
		return ""
	}
	b := make([]byte, 0, maxTicketBytes)
	if t.Client == "" {
		b = append(b, versionDirect)
	} else {
		b = append(b, versionProxied)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(t.Expires.Unix()))
	b = binary.BigEndian.AppendUint64(b, t.Nonce)
	fields := []string{t.Tenant, t.Service, t.Region}
	if t.Client != "" {
		fields = append(fields, t.Client)
	}
	for _, f := range fields {
		if len(f) > maxFieldBytes {
			return ""
		}
		b = append(append(b, byte(len(f))), f...)
	}
	return textEncoding().EncodeToString(append(b, computeMAC(key, b)...))
}

// OpenTicket parses a ticket that is signed by one of keys and valid at now. Only the first eight keys are
// tried, and keys shorter than MinKeyBytes are ignored. The comparison takes constant time.
func OpenTicket(keys [][]byte, s string, now time.Time) (RedirectTicket, error) {
	if len(s) > maxTextChars || strings.ContainsAny(s, "\r\n") { // encoding/base64 skips line ends even in strict mode
		return RedirectTicket{}, ErrMalformed
	}
	b, err := textEncoding().DecodeString(s)
	if err != nil || len(b) < minTicketBytes {
		return RedirectTicket{}, ErrMalformed
	}
	body, mac := b[:len(b)-macBytes], b[len(b)-macBytes:]
	t, ok := parseBody(body)
	if !ok {
		return RedirectTicket{}, ErrMalformed
	}
	if !isSignedByAny(keys, body, mac) {
		return RedirectTicket{}, ErrForged
	}
	switch {
	case !now.Before(t.Expires):
		return RedirectTicket{}, ErrExpired
	case t.Expires.After(now.Add(Lifetime + MaxClockSkew)): // longer than SeenTickets keeps it
		return RedirectTicket{}, ErrExpiryTooFar
	}
	return t, nil
}

// parseBody parses a body; each RedirectTicket has exactly one encoding.
func parseBody(b []byte) (t RedirectTicket, ok bool) {
	expires := binary.BigEndian.Uint64(b[1:])
	v := b[0]
	if v != versionDirect && v != versionProxied || expires > maxUnixSeconds {
		return RedirectTicket{}, false
	}
	t.Expires = time.Unix(int64(expires), 0)
	t.Nonce = binary.BigEndian.Uint64(b[9:])
	b = b[headerBytes:]
	fields := []*string{&t.Tenant, &t.Service, &t.Region}
	if v == versionProxied {
		fields = append(fields, &t.Client)
	}
	for _, f := range fields {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return RedirectTicket{}, false
		}
		*f, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	return t, len(b) == 0 && (t.Client != "") == (v == versionProxied)
}

func isSignedByAny(keys [][]byte, body, mac []byte) bool {
	found := false
	for _, k := range keys[:min(len(keys), maxKeysTried)] {
		if len(k) >= MinKeyBytes && hmac.Equal(computeMAC(k, body), mac) {
			found = true
		}
	}
	return found
}

func computeMAC(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(signingDomain))
	h.Write(body)
	return h.Sum(nil)[:macBytes]
}

// textEncoding is URL-safe, unpadded and strict, so that a ticket has no second spelling.
func textEncoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

const (
	// Lifetime is how long a redirect is valid.
	Lifetime = 30 * time.Second
	// MaxClockSkew is how far the clock of the signer may be ahead of the verifier's.
	MaxClockSkew = 30 * time.Second
)

// SeenTickets records the tickets presented to one gateway, so that each is accepted once. Its scope is that
// gateway: another one of the region would accept the ticket once more. It holds at most twice its limit, at
// about 50 bytes each; if more are presented within Lifetime and MaxClockSkew, the oldest are dropped early. It
// is not safe for concurrent use.
type SeenTickets struct {
	limit      int
	youngSince time.Time // start of the young generation
	young, old map[ticketID]struct{}
}

// ticketID identifies a ticket: a random nonce and the expiry.
type ticketID struct {
	nonce   uint64
	expires int64
}

// NewSeenTickets creates an empty table that drops tickets early beyond limit.
func NewSeenTickets(limit int) *SeenTickets {
	return &SeenTickets{limit: limit, young: map[ticketID]struct{}{}}
}

// MarkSeen reports whether an open ticket is presented for the first time, and records it.
func (s *SeenTickets) MarkSeen(t RedirectTicket, now time.Time) bool {
	k := ticketID{t.Nonce, t.Expires.Unix()}
	s.rotateGenerations(now)
	_, young := s.young[k]
	_, old := s.old[k]
	if young || old {
		return false
	}
	s.young[k] = struct{}{}
	return true
}

// rotateGenerations begins a new generation when the young one is full or old enough. No valid ticket lives
// longer than a generation, so all tickets of the dropped generation have expired.
func (s *SeenTickets) rotateGenerations(now time.Time) {
	if len(s.young) < s.limit && now.Sub(s.youngSince) <= Lifetime+MaxClockSkew {
		return
	}
	if s.old = s.young; now.Sub(s.youngSince) > 2*(Lifetime+MaxClockSkew) {
		s.old = nil
	}
	s.young, s.youngSince = map[ticketID]struct{}{}, now
}
