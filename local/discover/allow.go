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

// nameTimeout bounds the lookup of a name in a registered URL.
const nameTimeout = 2 * time.Second

// allowList says where registered workers may be. It is asked of addresses, never of names: a name that led to one
// address when it was checked may lead to another when it is dialled, so that the address is what goes into the URL.
type allowList struct {
	nets   []netip.Prefix
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

func parseAllow(texts []string) ([]netip.Prefix, error) {
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

// permits says that a worker may be at the address. Loopback needs a network that is loopback itself: a wide one that
// happens to hold it was not meant to open this machine's own services.
func (l *allowList) permits(a netip.Addr) bool {
	if a.Zone() != "" || Forbidden(a) {
		return false
	}
	a = a.Unmap()
	return slices.ContainsFunc(l.nets, func(p netip.Prefix) bool {
		p = unmapped(p)
		return p.Contains(a) && (!a.IsLoopback() || p.Addr().IsLoopback() && p.Bits() >= 8)
	})
}

func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// pin replaces the host in the worker's URLs by the address that was checked. Of a name with several the one in use
// stays as long as it is among them.
func (l *allowList) pin(ctx context.Context, w *Worker, last string) *refused {
	if reason, hint := checkURL(w.URL); reason != "" {
		return refuse(http.StatusBadRequest, "bad_url", reason+": "+hint)
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return refuse(http.StatusBadRequest, "bad_url", "the URL cannot be read")
	}
	port, no := portOf(u)
	if no != nil {
		return no
	}
	host := u.Hostname()
	at, no := l.address(ctx, host, last)
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

func portOf(u *url.URL) (uint16, *refused) {
	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, refuse(http.StatusBadRequest, "bad_url", "the URL's port is not between 1 and 65535")
	}
	return uint16(n), nil
}

// pinPage lets a page stand only at the worker's own host.
func pinPage(page *string, host string, at netip.Addr) *refused {
	if *page == "" {
		return nil
	}
	u, err := url.Parse(*page)
	if reason, _ := checkPage(*page); err != nil || reason != "" || u.Scheme != "http" || u.Hostname() != host {
		return refuse(http.StatusBadRequest, "bad_url", "metrics and gpu_metrics are pages at the URL's own host: write http://"+host+":PORT/metrics")
	}
	port, no := portOf(u)
	if no == nil {
		u.Host = netip.AddrPortFrom(at, port).String()
		*page = u.String()
	}
	return no
}

// pinStream lets cache events come from the worker's own host alone.
func pinStream(stream *string, host string, at netip.Addr) *refused {
	u, err := url.Parse(*stream)
	port := uint64(0)
	if err == nil {
		port, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || port == 0 || u.Scheme != "tcp" || u.Hostname() != host || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return refuse(http.StatusBadRequest, "bad_url", "kv_events and kv_replay stand at the URL's own host: write tcp://"+host+":PORT")
	}
	*stream = "tcp://" + netip.AddrPortFrom(at, uint16(port)).String()
	return nil
}

// address is the one address that a host stands for, when the list permits it and every other that it might stand for.
func (l *allowList) address(ctx context.Context, host, last string) (netip.Addr, *refused) {
	if a, err := netip.ParseAddr(host); err == nil {
		if !l.permits(a) {
			return a, refuse(http.StatusForbidden, "not_allowed", fmt.Sprintf("no worker may register at %s: registration.allow does not name it", a))
		}
		return a.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	found, err := l.lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return netip.Addr{}, refuse(http.StatusUnprocessableEntity, "unresolved", "the URL's host cannot be resolved here: write its IP address")
	}
	for i, a := range found {
		if !l.permits(a) {
			return a, refuse(http.StatusForbidden, "not_allowed", "the URL's host leads to an address that registration.allow does not name")
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
