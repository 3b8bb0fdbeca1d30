package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/origin"
)

// front judges the door that clients reach, and what it lets them do.
func (k *checker) front(c *Front, l *Limits) {
	k.door(c.TLSCert, c.TLSKey, c.TrustedProxies, c.ForwardedHeader, c.ProxyProtocol)
	k.between("limits.idle_timeout", l.IdleTimeout, time.Second, time.Hour)
	k.between("limits.tunnel_idle", l.TunnelIdle, time.Second, 24*time.Hour)
	k.between("limits.tunnel_life", l.TunnelLife, time.Second, 30*24*time.Hour)
	if l.MaxHeaderBytes < 4<<10 || l.MaxHeaderBytes > 1<<20 {
		k.bad("$.limits.max_header_bytes", fmt.Sprintf("max_header_bytes %d is out of range", l.MaxHeaderBytes), "write bytes, from 4096 to 1048576")
	}
	k.texts("$.limits.resume_texts", l.ResumeTexts)
	k.bodies("$.limits.body_memory", l.BodyMemory)
	if l.ClientStreams < 1 {
		k.bad("$.limits.client_streams", fmt.Sprintf("client_streams %d is not positive", l.ClientStreams), "write how many requests one address may have open, such as 1000")
	}
}

// door judges the certificate of a clients' listener and the proxies before it.
func (k *checker) door(cert, key string, proxies []string, header string, headed bool) {
	if (cert == "") != (key == "") {
		k.bad("$.http", "tls_cert and tls_key go together", "write both, or neither for plain HTTP")
	}
	if len(proxies) > origin.MaxNetworks {
		k.bad("$.http.trusted_proxies", fmt.Sprintf("%d networks of proxies are more than %d", len(proxies), origin.MaxNetworks), "write fewer, larger networks")
	}
	for i, n := range proxies {
		p, err := origin.ParseNetwork(n)
		path := fmt.Sprintf("$.http.trusted_proxies[%d]", i)
		switch {
		case err != nil:
			k.bad(path, err.Error(), "write a network such as 10.0.0.0/8 or 2001:db8::/32, or one address")
		case p.Bits() == 0:
			k.bad(path, fmt.Sprintf("%s would believe everybody", n), "write the networks of your own proxies")
		}
	}
	if !slices.Contains(origin.Headers(), header) {
		k.bad("$.http.forwarded_header", fmt.Sprintf("unknown forwarded_header %q", header), strict.Suggest(header, origin.Headers(), "headers"))
	}
	if headed && len(proxies) == 0 {
		k.bad("$.http.proxy_protocol", "proxy_protocol is on and no proxy is trusted", "list the proxies under trusted_proxies: PROXY headers of anybody else are not believed")
	}
}

// texts checks the room for what streams could be resumed from.
func (k *checker) texts(path string, n int64) {
	if n < 1<<20 || n > 64<<30 {
		k.bad(path, fmt.Sprintf("resume_texts %d is out of range", n), "write bytes, from 1048576 (1 MiB) to 68719476736 (64 GiB); a spec with routing.resume_text: 0 has no stream resumed")
	}
}

// bodies checks the room for request bodies.
func (k *checker) bodies(path string, n int64) {
	if n < 16<<20 || n > 1<<40 {
		k.bad(path, fmt.Sprintf("body_memory %d is out of range", n), "write bytes, from 16777216 (16 MiB) to 1099511627776 (1 TiB), and at least twice the spec's routing.max_body")
	}
}

// Trusted are the proxies that the door believes; the config was checked when it was read.
func (c *Front) Trusted() origin.Trusted { return trusted(c.TrustedProxies, c.ForwardedHeader) }

// Trusted are the proxies that the endpoint believes; the config was checked when it was read.
func (c *Redirect) Trusted() origin.Trusted { return trusted(c.TrustedProxies, c.ForwardedHeader) }

func trusted(proxies []string, header string) origin.Trusted {
	var nets []netip.Prefix
	for _, n := range proxies {
		if p, err := origin.ParseNetwork(n); err == nil {
			nets = append(nets, p)
		}
	}
	return origin.NewTrusted(nets, origin.Header(header))
}
