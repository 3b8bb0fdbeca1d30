package main

import (
	"crypto/tls"
	"log/slog"
	"runtime"

	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/config"
)

// openDNS converts the DNS section of a config. cert is the certificate of DNS over TLS, nil to use the node's own.
func openDNS(c *config.DNSServer, log *slog.Logger) (out dns.Config, cert *certfile.KeyPair, err error) {
	out = dns.Config{
		TLSListen: c.TLS.Listen, Explain: !c.Quiet, ResponseRate: c.Rate, SlipEvery: c.Slip, MaxTCPConns: c.MaxConnections, DedicatedProcs: c.Dedicated,
	}
	if c.Unlimited {
		out.ResponseRate = 0
	}
	if c.ShowVersion {
		out.Version = "spillway " + version
	}
	if c.Dedicated {
		// Each reader occupies a processor of the Go scheduler while it waits in the kernel, so more are added for the rest.
		out.Readers = dns.DefaultReaders()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + out.Readers*len(c.Listen))
	}
	if c.TLS.Cert != "" {
		if cert, err = certfile.LoadKeyPair("dns.tls.cert", c.TLS.Cert, c.TLS.Key, log); err != nil {
			return out, nil, err
		}
		out.TLS = &tls.Config{GetCertificate: cert.GetCertificate}
	}
	return out, cert, nil
}
