package discover

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// hostLookupTimeout bounds the lookup of a host name in a registered URL.
const hostLookupTimeout = 2 * time.Second

// allowList holds the networks in which registered workers may be. It checks addresses, never names: a name may
// resolve to another address when it is dialed, so the checked address replaces the host in the URL.
type allowList struct {
	nets   []netip.Prefix
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

func parseAllowList(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("registration.allow: %q is not a network such as 10.0.0.0/16", s)
		}
		out = append(out, p)
	}
	return out, nil
}

// permitsAddr reports whether a worker may be at the address. Loopback needs a network that is itself loopback: a
// wide network that contains it must not expose services of this machine.
func (l *allowList) permitsAddr(a netip.Addr) bool {
	if a.Zone() != "" || IsForbiddenAddr(a) {
		return false
	}
	a = a.Unmap()
	return slices.ContainsFunc(l.nets, func(p netip.Prefix) bool {
		p = unmapPrefix(p)
		return p.Contains(a) && (!a.IsLoopback() || p.Addr().IsLoopback() && p.Bits() >= 8)
	})
}

func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// pinURLs replaces the host in the worker's URLs by the checked address. For a name with several addresses, the one
// in use stays while it is among them.
func (l *allowList) pinURLs(ctx context.Context, w *Worker, last string) *rejection {
	if reason, hint := checkURL(w.URL); reason != "" {
		return newRejection(http.StatusBadRequest, "bad_url", reason+": "+hint)
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return newRejection(http.StatusBadRequest, "bad_url", "the URL cannot be read")
	}
	port, no := urlPort(u)
	if no != nil {
		return no
	}
	host := u.Hostname()
	at, no := l.resolveHost(ctx, host, last)
	if no != nil {
		return no
	}
	for _, page := range []*string{&w.Metrics, &w.GPUMetrics} {
		if no := pinPage(page, host, at); no != nil {
			return no
		}
	}
	for _, stream := range [][]string{w.KVEvents, w.KVReplay} {
		for i := range stream {
			if no := pinStream(&stream[i], host, at); no != nil {
				return no
			}
		}
	}
	w.URL = u.Scheme + "://" + netip.AddrPortFrom(at, port).String()
	if _, err := netip.ParseAddr(host); err != nil && u.Scheme == "https" {
		w.ServerName = host
	}
	return nil
}

func urlPort(u *url.URL) (uint16, *rejection) {
	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, newRejection(http.StatusBadRequest, "bad_url", "the URL's port is not between 1 and 65535")
	}
	return uint16(n), nil
}

// pinPage requires a page at the worker's own host.
func pinPage(page *string, host string, at netip.Addr) *rejection {
	if *page == "" {
		return nil
	}
	u, err := url.Parse(*page)
	if reason, _ := checkPage(*page); err != nil || reason != "" || u.Scheme != "http" || u.Hostname() != host {
		return newRejection(http.StatusBadRequest, "bad_url", "metrics and gpu_metrics must be pages at the URL's own host: write http://"+host+":PORT/metrics")
	}
	port, no := urlPort(u)
	if no == nil {
		u.Host = netip.AddrPortFrom(at, port).String()
		*page = u.String()
	}
	return no
}

// pinStream requires cache events from the worker's own host.
func pinStream(stream *string, host string, at netip.Addr) *rejection {
	u, err := url.Parse(*stream)
	port := uint64(0)
	if err == nil {
		port, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || port == 0 || u.Scheme != "tcp" || u.Hostname() != host || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return newRejection(http.StatusBadRequest, "bad_url", "kv_events and kv_replay must be at the URL's own host: write tcp://"+host+":PORT")
	}
	*stream = "tcp://" + netip.AddrPortFrom(at, uint16(port)).String()
	return nil
}

// resolveHost returns the address of a host, if the list permits it and all other addresses of the host.
func (l *allowList) resolveHost(ctx context.Context, host, last string) (netip.Addr, *rejection) {
	if a, err := netip.ParseAddr(host); err == nil {
		if !l.permitsAddr(a) {
			return a, newRejection(http.StatusForbidden, "not_allowed", fmt.Sprintf("no worker may register at %s: registration.allow does not include it", a))
		}
		return a.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostLookupTimeout)
	defer cancel()
	found, err := l.lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return netip.Addr{}, newRejection(http.StatusUnprocessableEntity, "unresolved", "the URL's host cannot be resolved here: write its IP address")
	}
	for i, a := range found {
		if !l.permitsAddr(a) {
			return a, newRejection(http.StatusForbidden, "not_allowed", "the URL's host resolves to an address that registration.allow does not include")
		}
		found[i] = a.Unmap()
	}
	for _, a := range found {
		if u, err := url.Parse(last); err == nil && u.Hostname() == a.String() {
			return a, nil
		}
	}
	return slices.MinFunc(found, netip.Addr.Compare), nil
}
