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

// Reasons why Open refuses a ticket.
var (
	ErrMalformed = errors.New("ticket is malformed")
	ErrForged    = errors.New("ticket is not signed by a key in use")
	ErrExpired   = errors.New("ticket has expired")
	ErrEarly     = errors.New("ticket is good for longer than any is minted for: the clocks are too far apart")
)

// MinKey is the shortest key, in bytes, that signs or opens.
const MinKey = 16

const (
	version  = 1 // without a client, as earlier releases know it
	proxied  = 2 // with one
	maxField = 255
	macSize  = 16                             // half of SHA-256, which RFC 2104 section 5 allows
	header   = 1 + 8 + 8                      // version, expiry, nonce
	minSize  = header + 3 + macSize           // with three empty fields
	maxSize  = minSize + 1 + 4*maxField       // in bytes
	maxText  = (maxSize*8 + 5) / 6            // in base64 characters
	maxKeys  = 8                              // more are not tried: each costs a hash
	maxUnix  = 1<<40 - 1                      // seconds; the year 36812, which time.Time can still hold
	domain   = "spillway redirect ticket\x00" // keeps these signatures apart from any other use of a key
)

// Ticket is what a redirect vouches for.
type Ticket struct {
	Tenant  string    // who was authenticated
	Service string    // the service's name, as the client asked for it
	Region  string    // where the redirect sent the client
	Expires time.Time // first second at which it is no longer good; fractions are dropped
	Nonce   uint64    // tells tickets of one second apart
	Client  string    // the client's address, when the global tier passes its request on; empty: the client comes itself
}

// Mint signs t with key. It is empty when t cannot be carried: a field over 255 bytes, an expiry before 1970, or a key
// shorter than MinKey.
func Mint(key []byte, t Ticket) string {
	if len(key) < MinKey || t.Expires.Unix() < 0 || t.Expires.Unix() > maxUnix {
		return ""
	}
	b := make([]byte, 0, maxSize)
	if t.Client == "" {
		b = append(b, version)
	} else {
		b = append(b, proxied)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(t.Expires.Unix()))
	b = binary.BigEndian.AppendUint64(b, t.Nonce)
	fields := []string{t.Tenant, t.Service, t.Region}
	if t.Client != "" {
		fields = append(fields, t.Client)
	}
	for _, f := range fields {
		if len(f) > maxField {
			return ""
		}
		b = append(append(b, byte(len(f))), f...)
	}
	return text().EncodeToString(append(b, sign(key, b)...))
}

// Open reads a ticket that one of keys signed and that is still good at now. Only the first eight keys are tried, and
// keys shorter than MinKey open nothing. The comparison takes the same time wherever signatures differ.
func Open(keys [][]byte, s string, now time.Time) (Ticket, error) {
	if len(s) > maxText || strings.ContainsAny(s, "\r\n") { // encoding/base64 skips line ends even when strict
		return Ticket{}, ErrMalformed
	}
	b, err := text().DecodeString(s)
	if err != nil || len(b) < minSize {
		return Ticket{}, ErrMalformed
	}
	body, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	t, ok := parse(body)
	if !ok {
		return Ticket{}, ErrMalformed
	}
	if !signed(keys, body, mac) {
		return Ticket{}, ErrForged
	}
	switch {
	case !now.Before(t.Expires):
		return Ticket{}, ErrExpired
	case t.Expires.After(now.Add(Life + Skew)): // longer than Seen remembers
		return Ticket{}, ErrEarly
	}
	return t, nil
}

// parse reads a body; there is exactly one body for each Ticket.
func parse(b []byte) (t Ticket, ok bool) {
	expires := binary.BigEndian.Uint64(b[1:])
	v := b[0]
	if v != version && v != proxied || expires > maxUnix {
		return Ticket{}, false
	}
	t.Expires = time.Unix(int64(expires), 0)
	t.Nonce = binary.BigEndian.Uint64(b[9:])
	b = b[header:]
	fields := []*string{&t.Tenant, &t.Service, &t.Region}
	if v == proxied {
		fields = append(fields, &t.Client)
	}
	for _, f := range fields {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return Ticket{}, false
		}
		*f, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	return t, len(b) == 0 && (t.Client != "") == (v == proxied)
}

func signed(keys [][]byte, body, mac []byte) bool {
	found := false
	for _, k := range keys[:min(len(keys), maxKeys)] {
		if len(k) >= MinKey && hmac.Equal(sign(k, body), mac) {
			found = true
		}
	}
	return found
}

func sign(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(domain))
	h.Write(body)
	return h.Sum(nil)[:macSize]
}

// text is URL-safe, without padding, and strict, so that no second spelling of a ticket opens.
func text() *base64.Encoding { return base64.RawURLEncoding.Strict() }
