package wire

import (
	"crypto/tls"
	"sync"
)

// maxNamed bounds the hosts whose configurations are kept. A tier dials fewer.
const maxNamed = 256

// NamedConfigs are a TLS configuration for each host that is dialled. A connection holds its own for as long as it lives, and
// all to one host hold the same.
type NamedConfigs struct {
	base *tls.Config

	mu     sync.Mutex
	byHost map[string]*tls.Config
}

// Named are the configurations made from base, which is not changed from now on; nil stands for the usual one.
func Named(base *tls.Config) *NamedConfigs {
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &NamedConfigs{base: base, byHost: map[string]*tls.Config{}}
}

// Of is the configuration for a host.
func (n *NamedConfigs) Of(host string) *tls.Config {
	if n.base.ServerName != "" {
		return n.base
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	cfg := n.byHost[host]
	if cfg == nil {
		cfg = n.base.Clone()
		cfg.ServerName = host
		if len(n.byHost) >= maxNamed {
			clear(n.byHost)
		}
		n.byHost[host] = cfg
	}
	return cfg
}
