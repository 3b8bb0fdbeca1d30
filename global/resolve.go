package global

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/identity"
)

func (s *Server) openDNS() (err error) {
	cfg := s.cfg.DNS
	cfg.Listen, cfg.NSID, cfg.Log = s.cfg.DNSListen, s.cfg.NSID, s.log
	cfg.NoSockets = s.cfg.Network != nil
	cfg.Snapshot, cfg.CookieSecrets = s.dnsSnapshot, s.cookieSecrets
	cfg.Observe = func(e dns.QueryEvent) { s.metrics.observeDNS(e) }
	if cfg.TLS == nil {
		cfg.TLS = serverOnlyTLS(s.cfg.Certs)
	}
	s.dns, err = dns.New(cfg)
	return err
}

// AnswerDNS appends the answer to a query over UDP to dst[:0]; ok is false if there would be no answer.
func (s *Server) AnswerDNS(dst, msg []byte, from netip.Addr) (out []byte, ok bool) {
	return s.dns.Answer(dst, msg, from)
}

// serverOnlyTLS presents the node's own certificate to any client without client authentication: resolvers have no
// certificate of ours.
func serverOnlyTLS(certs *identity.Certs) *tls.Config {
	mutual := certs.ServerTLS("dot", nil)
	return &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		one, err := mutual.GetConfigForClient(hello)
		if err != nil {
			return nil, err
		}
		one = one.Clone() // it is shared
		one.ClientAuth, one.ClientCAs, one.VerifyConnection = tls.NoClientCert, nil, nil
		return one, nil
	}}
}

// dnsSnapshot never returns an interface that holds a nil snapshot.
func (s *Server) dnsSnapshot() dns.Snapshot {
	if v := s.snapshot.Load(); v != nil {
		return v
	}
	return nil
}

// cookieSecrets returns the secrets of the snapshot in use. A node that answers from the spec file or the backup has
// none.
func (s *Server) cookieSecrets() []dns.CookieSecret {
	if v := s.snapshot.Load(); v != nil {
		return v.cookieSecrets
	}
	return nil
}

// cookieHKDFInfo separates cookie secrets from other keys derived from the same key (RFC 5869, section 3.2).
const cookieHKDFInfo = "spillway dns cookie 1"

// deriveCookieSecrets derives the secrets of DNS cookies from the agreed ticket keys, so that all nodes have the same
// secrets and rotate them together. The first one signs: the newest that every node has had time to receive.
func deriveCookieSecrets(keys []consensus.TicketKey, now time.Time) []dns.CookieSecret {
	if len(keys) == 0 {
		return nil
	}
	signing := signingKey(keys, now)
	out := make([]dns.CookieSecret, 1, len(keys))
	for i := range keys {
		b, err := hkdf.Key(sha256.New, keys[i].Secret, nil, cookieHKDFInfo, len(dns.CookieSecret{}))
		if err != nil {
			return nil // only for a length that no hash can produce
		}
		if &keys[i].Secret[0] == &signing[0] {
			copy(out[0][:], b)
			continue
		}
		out = append(out, dns.CookieSecret(b))
	}
	return out
}

// cookieSecretCache caches the derived DNS cookie secrets.
type cookieSecretCache struct {
	newestAt time.Time
	keyCount int
	settled  bool
	secrets  []dns.CookieSecret
}

// secretsFor returns the secrets. It derives them again only if the keys have changed or the newest key has settled.
func (c *cookieSecretCache) secretsFor(keys []consensus.TicketKey, now time.Time) []dns.CookieSecret {
	if len(keys) == 0 {
		return nil
	}
	settled := now.Sub(keys[0].At) > keySettleTime
	if !keys[0].At.Equal(c.newestAt) || len(keys) != c.keyCount || settled != c.settled {
		*c = cookieSecretCache{newestAt: keys[0].At, keyCount: len(keys), settled: settled, secrets: deriveCookieSecrets(keys, now)}
	}
	return c.secrets
}
