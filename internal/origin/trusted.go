package origin

import (
	"fmt"
	"net/netip"
	"strings"
)

// Header is which header the proxies write. One is believed and no other: a proxy that appends to one passes the others on
// as its client wrote them.
type Header string

// The headers that proxies write.
const (
	XForwardedFor Header = "x-forwarded-for"
	Forwarded     Header = "forwarded"
	None          Header = "none"
)

// Headers lists them, the default first.
func Headers() []string { return []string{string(XForwardedFor), string(Forwarded), string(None)} }

// Trusted are the networks of the proxies that are believed. The zero value believes nobody.
type Trusted struct {
	nets   []netip.Prefix
	header Header
}

// MaxNetworks bounds the list: each connection is compared with all of it.
const MaxNetworks = 256

// NewTrusted makes the list; an empty header is X-Forwarded-For.
func NewTrusted(nets []netip.Prefix, header Header) Trusted {
	if header == "" {
		header = XForwardedFor
	}
	return Trusted{nets: nets, header: header}
}

// ParseNetwork reads a network, or an address that stands for itself alone.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is no network", s)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%s has bits set beyond its length: the network is %s", p, p.Masked())
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is IPv4 in IPv6's form", p)
	}
	return p, nil
}

// Any reports whether anybody is believed.
func (t *Trusted) Any() bool { return len(t.nets) > 0 }

// Has reports whether an address is one of a proxy that is believed.
func (t *Trusted) Has(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for i := range t.nets {
		if t.nets[i].Contains(a) {
			return true
		}
	}
	return false
}

// Client is who asks: the address of the connection or, where that is a proxy's, the first one from the right in the
// proxies' header that is no proxy's. An entry that cannot be read ends the walk at the proxy that wrote it. h is an
// http.Header.
func (t *Trusted) Client(remote netip.Addr, h map[string][]string) netip.Addr {
	if !t.Any() || !t.Has(remote) {
		return remote
	}
	switch t.header {
	case XForwardedFor:
		return t.walk(remote, h["X-Forwarded-For"], lastEntry, entryAddr)
	case Forwarded:
		return t.walk(remote, h["Forwarded"], lastElement, elementAddr)
	}
	return remote
}

// walk goes through lines of a list from the right: cut takes the last member off, read finds the address in it.
func (t *Trusted) walk(at netip.Addr, lines []string, cut func(string) (rest, last string), read func(string) (netip.Addr, bool)) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; {
			var last string
			rest, last = cut(rest)
			if last = strings.Trim(last, " \t"); last == "" {
				continue // RFC 9110, 5.6.1: empty members of a list are passed over
			}
			a, ok := read(last)
			if !ok {
				return at
			}
			if at = a; !t.Has(a) {
				return at
			}
		}
	}
	return at
}

func lastEntry(s string) (rest, last string) {
	if i := strings.LastIndexByte(s, ','); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

// lastElement cuts at the last comma outside a quoted string. A quote that is never closed swallows what is left of it,
// which can then not be read.
func lastElement(s string) (rest, last string) {
	at, quoted := -1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			at = i
		}
	}
	if at < 0 {
		return "", s
	}
	return s[:at], s[at+1:]
}

// entryAddr reads an address with or without a port, and with or without brackets.
func entryAddr(s string) (netip.Addr, bool) {
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			a, err := netip.ParseAddr(inner)
			return a.WithZone(""), err == nil && a.Is6()
		}
	}
	return netip.Addr{}, false
}

// elementAddr reads the one for= of an element. "unknown" and hidden names are none.
func elementAddr(s string) (a netip.Addr, ok bool) {
	for s != "" {
		var pair string
		pair, s = firstPair(s)
		name, value, is := strings.Cut(pair, "=")
		if !is || !strings.EqualFold(strings.Trim(name, " \t"), "for") {
			continue
		}
		if ok {
			return netip.Addr{}, false
		}
		value = strings.Trim(value, " \t")
		if inner, quoted := strings.CutPrefix(value, `"`); quoted {
			if value, quoted = strings.CutSuffix(inner, `"`); !quoted {
				return netip.Addr{}, false
			}
		}
		if a, ok = entryAddr(value); !ok {
			return a, false
		}
	}
	return a, ok
}

// firstPair cuts at the first semicolon outside a quoted string.
func firstPair(s string) (pair, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
