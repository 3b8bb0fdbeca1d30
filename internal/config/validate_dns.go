package config

import "fmt"

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
		k.addProblem("$.dns.tls", "cert and key go together", "write both, or neither to show the node's own certificate")
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
