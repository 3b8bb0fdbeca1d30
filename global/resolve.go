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
	cfg.Deaf = s.cfg.Network != nil
	cfg.View, cfg.Secrets = s.dnsView, s.cookieSecrets
	cfg.Observe = func(e dns.Event) { s.metrics.observe(e) }
	if cfg.TLS == nil {
		cfg.TLS = plainTLS(s.cfg.Certs)
	}
	s.dns, err = dns.New(cfg)
	return err
}

// AnswerDNS appends to dst[:0] what a question over UDP would be answered; ok is false where it would not be answered.
func (s *Server) AnswerDNS(dst, msg []byte, from netip.Addr) (out []byte, ok bool) {
	return s.dns.Answer(dst, msg, from)
}

// plainTLS shows the node's own certificate to anybody: resolvers have none of ours.
func plainTLS(certs *identity.Certs) *tls.Config {
	mutual := certs.Server("dot", nil)
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

// dnsView never returns an interface that holds a nil View.
func (s *Server) dnsView() dns.View {
	if v := s.view.Load(); v != nil {
		return v
	}
	return nil
}

// cookieSecrets are those of the View in use. A node that answers from a mere file or backup has none.
func (s *Server) cookieSecrets() []dns.Secret {
	if v := s.view.Load(); v != nil {
		return v.secrets
	}
	return nil
}

// cookieInfo keeps what is derived for cookies apart from all else that is (RFC 5869, 3.2).
const cookieInfo = "spillway dns cookie 1"

// deriveSecrets makes the secrets of DNS cookies from the agreed ticket keys, so that all nodes hold the same and they
// roll over together. First comes the one that signs: the newest that every node has had time to learn.
func deriveSecrets(keys []consensus.Key, now time.Time) []dns.Secret {
	if len(keys) == 0 {
		return nil
	}
	signing := signingKey(keys, now)
	out := make([]dns.Secret, 1, len(keys))
	for i := range keys {
		b, err := hkdf.Key(sha256.New, keys[i].Secret, nil, cookieInfo, len(dns.Secret{}))
		if err != nil {
			return nil // only a length that no hash can give
		}
		if &keys[i].Secret[0] == &signing[0] {
			copy(out[0][:], b)
			continue
		}
		out = append(out, dns.Secret(b))
	}
	return out
}
