package http1

import (
	"crypto/tls"
	"sync"
)

// maxHostConfigs bounds the hosts whose configurations are cached. A tier dials fewer.
const maxHostConfigs = 256

// HostTLSConfigs holds one TLS configuration per dialled host. A connection keeps its configuration for its
// whole life; all connections to a host share one.
type HostTLSConfigs struct {
	base *tls.Config

	mu     sync.Mutex
	byHost map[string]*tls.Config
}

// NewHostTLSConfigs derives configurations from base, which must not change afterwards; nil means the default
// configuration.
func NewHostTLSConfigs(base *tls.Config) *HostTLSConfigs {
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &HostTLSConfigs{base: base, byHost: map[string]*tls.Config{}}
}

// ConfigFor returns the configuration for a host.
func (n *HostTLSConfigs) ConfigFor(host string) *tls.Config {
	if n.base.ServerName != "" {
		return n.base
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	cfg := n.byHost[host]
	if cfg == nil {
		cfg = n.base.Clone()
		cfg.ServerName = host
		if len(n.byHost) >= maxHostConfigs {
			clear(n.byHost)
		}
		n.byHost[host] = cfg
	}
	return cfg
}
