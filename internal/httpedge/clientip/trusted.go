// Package clientip determines the address of a client behind proxies: by the PROXY protocol (versions 1 and 2,
// HAProxy's proxy-protocol.txt), by X-Forwarded-For or by Forwarded (RFC 7239). ProxyListener handles the PROXY
// protocol, TrustedProxies the headers.
//
// Only proxies listed by the operator are trusted. In a chain of proxies the client is the first address from
// the right that is not a trusted proxy. Malformed entries are never trusted and never guessed.
//
// The PROXY parser is the package's own, because no module of this one's graph contains one; it works on the bytes
// read so far, and is fuzzed.
package clientip

import (
	"fmt"
	"net/netip"
	"strings"
)

// ForwardHeader is the header that the proxies write. Only one is trusted: a proxy that appends to one header
// passes the others on as its client wrote them.
type ForwardHeader string

// The headers that proxies write.
const (
	XForwardedFor   ForwardHeader = "x-forwarded-for"
	Forwarded       ForwardHeader = "forwarded"
	NoForwardHeader ForwardHeader = "none"
)

// ForwardHeaders lists the headers, the default first.
func ForwardHeaders() []string {
	return []string{string(XForwardedFor), string(Forwarded), string(NoForwardHeader)}
}

// TrustedProxies holds the networks of trusted proxies. The zero value trusts none.
type TrustedProxies struct {
	networks []netip.Prefix
	header   ForwardHeader
}

// MaxNetworks bounds the list: each connection is compared with all entries.
const MaxNetworks = 256

// NewTrustedProxies creates the list; an empty header means X-Forwarded-For.
func NewTrustedProxies(nets []netip.Prefix, header ForwardHeader) TrustedProxies {
	if header == "" {
		header = XForwardedFor
	}
	return TrustedProxies{networks: nets, header: header}
}

// ParseNetwork parses a network, or an address as a network of one address.
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

// HasAny reports whether any proxy is trusted.
func (t *TrustedProxies) HasAny() bool { return len(t.networks) > 0 }

// ContainsAddr reports whether an address is that of a trusted proxy.
func (t *TrustedProxies) ContainsAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for i := range t.networks {
		if t.networks[i].Contains(a) {
			return true
		}
	}
	return false
}

// ClientAddr returns the address of the client: that of the connection or, if that is a proxy, the first
// address from the right in the header that is not a proxy. A malformed entry ends the walk at the proxy that
// wrote it. h is an http.Header.
func (t *TrustedProxies) ClientAddr(remote netip.Addr, h map[string][]string) netip.Addr {
	if !t.HasAny() || !t.ContainsAddr(remote) {
		return remote
	}
	switch t.header {
	case XForwardedFor:
		return t.walkBack(remote, h["X-Forwarded-For"], cutLastEntry, parseEntryAddr)
	case Forwarded:
		return t.walkBack(remote, h["Forwarded"], cutLastElement, parseElementAddr)
	}
	return remote
}

// walkBack walks the lines of a list from the right: cut removes the last element, read parses its address.
func (t *TrustedProxies) walkBack(at netip.Addr, lines []string, cut func(string) (rest, last string), read func(string) (netip.Addr, bool)) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; {
			var last string
			rest, last = cut(rest)
			if last = strings.Trim(last, " \t"); last == "" {
				continue // RFC 9110, 5.6.1: empty list elements are skipped
			}
			a, ok := read(last)
			if !ok {
				return at
			}
			if at = a; !t.ContainsAddr(a) {
				return at
			}
		}
	}
	return at
}

func cutLastEntry(s string) (rest, last string) {
	if i := strings.LastIndexByte(s, ','); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

// cutLastElement cuts at the last comma outside a quoted string. An unterminated quote extends over the rest,
// which is then malformed.
func cutLastElement(s string) (rest, last string) {
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

// parseEntryAddr parses an address with or without a port and brackets.
func parseEntryAddr(s string) (netip.Addr, bool) {
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

// parseElementAddr parses the only for= of an element. "unknown" and obfuscated names are not addresses.
func parseElementAddr(s string) (a netip.Addr, ok bool) {
	for s != "" {
		var pair string
		pair, s = cutFirstPair(s)
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
		if a, ok = parseEntryAddr(value); !ok {
			return a, false
		}
	}
	return a, ok
}

// cutFirstPair cuts at the first semicolon outside a quoted string.
func cutFirstPair(s string) (pair, rest string) {
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

// ClientLimitKey returns the key for limits per client: an IPv4 address, or the /64 of an IPv6 address, because
// one client may own all of it.
func ClientLimitKey(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
