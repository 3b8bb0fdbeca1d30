package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
)

// checkGatewayHTTP checks the public listener and its limits.
func (k *configChecker) checkGatewayHTTP(c *GatewayHTTP, l *GatewayLimits) {
	k.checkClientListener(c.TLSCert, c.TLSKey, c.TrustedProxies, c.ForwardedHeader, c.ProxyProtocol)
	k.checkDuration("limits.idle_timeout", l.IdleTimeout, time.Second, time.Hour)
	k.checkDuration("limits.tunnel_idle", l.TunnelIdle, time.Second, 24*time.Hour)
	k.checkDuration("limits.tunnel_life", l.TunnelLife, time.Second, 30*24*time.Hour)
	if l.MaxHeaderBytes < 4<<10 || l.MaxHeaderBytes > 1<<20 {
		k.addProblem("$.limits.max_header_bytes", fmt.Sprintf("max_header_bytes %d is out of range", l.MaxHeaderBytes), "write bytes, from 4096 to 1048576")
	}
	k.checkResumeTexts("$.limits.resume_texts", l.ResumeTexts)
	k.checkBodyMemory("$.limits.body_memory", l.BodyMemory)
	if l.ClientStreams < 1 {
		k.addProblem("$.limits.client_streams", fmt.Sprintf("client_streams %d is not positive", l.ClientStreams), "write how many requests one address may have open, such as 1000")
	}
}

// checkClientListener checks the certificate of a client listener and the proxies before it.
func (k *configChecker) checkClientListener(cert, key string, proxies []string, header string, headed bool) {
	if (cert == "") != (key == "") {
		k.addProblem("$.http", "tls_cert and tls_key go together", "write both, or neither for plain HTTP")
	}
	if len(proxies) > clientip.MaxNetworks {
		k.addProblem("$.http.trusted_proxies", fmt.Sprintf("there are %d networks of proxies, more than %d", len(proxies), clientip.MaxNetworks), "write fewer, larger networks")
	}
	for i, n := range proxies {
		p, err := clientip.ParseNetwork(n)
		path := fmt.Sprintf("$.http.trusted_proxies[%d]", i)
		switch {
		case err != nil:
			k.addProblem(path, err.Error(), "write a network such as 10.0.0.0/8 or 2001:db8::/32, or one address")
		case p.Bits() == 0:
			k.addProblem(path, fmt.Sprintf("%s would trust every client", n), "write the networks of your own proxies")
		}
	}
	if !slices.Contains(clientip.ForwardHeaders(), header) {
		k.addProblem("$.http.forwarded_header", fmt.Sprintf("unknown forwarded_header %q", header), strict.SuggestName(header, clientip.ForwardHeaders(), "headers"))
	}
	if headed && len(proxies) == 0 {
		k.addProblem("$.http.proxy_protocol", "proxy_protocol is on and no proxy is trusted", "list the proxies under trusted_proxies: PROXY headers from other addresses are ignored")
	}
}

// checkResumeTexts checks the memory for texts of resumable streams.
func (k *configChecker) checkResumeTexts(path string, n int64) {
	if n < 1<<20 || n > 64<<30 {
		k.addProblem(path, fmt.Sprintf("resume_texts %d is out of range", n), "write bytes, from 1048576 (1 MiB) to 68719476736 (64 GiB); to resume no stream, set routing.resume_text: 0 in the spec")
	}
}

// checkBodyMemory checks the memory for request bodies.
func (k *configChecker) checkBodyMemory(path string, n int64) {
	if n < 16<<20 || n > 1<<40 {
		k.addProblem(path, fmt.Sprintf("body_memory %d is out of range", n), "write bytes, from 16777216 (16 MiB) to 1099511627776 (1 TiB), and at least twice the spec's routing.max_body")
	}
}

// ProxyTrust returns the trusted proxies of the listener; the config was validated before.
func (c *GatewayHTTP) ProxyTrust() clientip.TrustedProxies {
	return parseProxyTrust(c.TrustedProxies, c.ForwardedHeader)
}

// ProxyTrust returns the trusted proxies of the endpoint; the config was validated before.
func (c *RedirectEndpoint) ProxyTrust() clientip.TrustedProxies {
	return parseProxyTrust(c.TrustedProxies, c.ForwardedHeader)
}

func parseProxyTrust(proxies []string, header string) clientip.TrustedProxies {
	var nets []netip.Prefix
	for _, n := range proxies {
		if p, err := clientip.ParseNetwork(n); err == nil {
			nets = append(nets, p)
		}
	}
	return clientip.NewTrustedProxies(nets, clientip.ForwardHeader(header))
}

// maxProxied is the largest allowed max_proxied: each request holds two connections.
const maxProxied = 100_000

// checkMaxProxied checks http.max_proxied.
func (k *configChecker) checkMaxProxied(c *RedirectEndpoint) {
	if c.MaxProxied < 1 || c.MaxProxied > maxProxied {
		k.addProblem("$.http.max_proxied", fmt.Sprintf("http.max_proxied %d is out of range", c.MaxProxied), fmt.Sprintf("write 1 to %d; redirect_proxy of a service in the spec enables passing on", maxProxied))
	}
}

// maxDNSIdentityBytes limits a node's name to one character-string (RFC 1035, 3.3).
const maxDNSIdentityBytes = 255

func (k *configChecker) checkDNS(d *DNSServer) {
	for i, a := range d.Listen {
		k.checkListenAddr(fmt.Sprintf("dns.listen[%d]", i), a, "dns", true)
	}
	for i, a := range d.TLS.Listen {
		k.checkListenAddr(fmt.Sprintf("dns.tls.listen[%d]", i), a, "tcp", true)
	}
	if (d.TLS.Cert == "") != (d.TLS.Key == "") {
		k.addProblem("$.dns.tls", "cert and key go together", "write both, or neither to use the node's own certificate")
	}
	if len(d.Identity) > maxDNSIdentityBytes {
		k.addProblem("$.dns.identity", fmt.Sprintf("the identity has %d characters, more than %d", len(d.Identity), maxDNSIdentityBytes), "write a short name, such as that of the node")
	}
	if d.Rate < 1 || d.Rate > 1_000_000 {
		k.addProblem("$.dns.rate", fmt.Sprintf("rate %d is out of range", d.Rate), "write answers per second up to 1000000, such as 1000, or unlimited: true for no bound")
	}
	if d.Slip < 1 || d.Slip > 100 {
		k.addProblem("$.dns.slip", fmt.Sprintf("slip %d is out of range", d.Slip), "write 1 to truncate every answer over the rate, up to 100 to send fewer")
	}
	if d.MaxConnections < 1 {
		k.addProblem("$.dns.max_connections", fmt.Sprintf("max_connections %d is not positive", d.MaxConnections), "write how many connections may be open at one time, such as 512")
	}
}
