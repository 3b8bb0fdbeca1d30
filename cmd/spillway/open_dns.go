package main

import (
	"crypto/tls"
	"log/slog"
	"runtime"

	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/config"
)

// openDNS also returns the certificate of DNS over TLS, nil where that shows the node's own.
func openDNS(c *config.DNS, log *slog.Logger) (out dns.Config, cert *certfile.Pair, err error) {
	out = dns.Config{
		TLSListen: c.TLS.Listen, Explain: !c.Quiet, Rate: c.Rate, Slip: c.Slip, MaxTCP: c.MaxConnections, Dedicated: c.Dedicated,
	}
	if c.Unlimited {
		out.Rate = 0
	}
	if c.ShowVersion {
		out.Version = "spillway " + version
	}
	if c.Dedicated {
		// Each reader keeps a processor of Go's scheduler while it waits in the kernel: the rest of the node gets its own.
		out.Readers = dns.Readers()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + out.Readers*len(c.Listen))
	}
	if c.TLS.Cert != "" {
		if cert, err = certfile.LoadPair("dns.tls.cert", c.TLS.Cert, c.TLS.Key, log); err != nil {
			return out, nil, err
		}
		out.TLS = &tls.Config{GetCertificate: cert.Get}
	}
	return out, cert, nil
}
