package main

import (
	"crypto/tls"
	"fmt"
	"runtime"

	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/config"
)

func openDNS(c *config.DNS) (dns.Config, error) {
	out := dns.Config{
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
		cert, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return out, fmt.Errorf("loading the certificate of DNS over TLS: %w", err)
		}
		out.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	return out, nil
}
