package regional

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/regional/rtt"
)

// maxAnswerSilence bounds the wait for the next chunk of a response. It is long because a response that is not
// streamed is silent until its last token. Shorter silences are judged by the local tier, which has the workers'
// state.
const maxAnswerSilence = 15 * time.Minute

// openTransports makes the forwarders to the region's local instances and to other regions.
func (g *Gateway) openTransports() {
	local := forward.WithFastPath(g.hedgeConnections(g.newTransport(g.policies.checkLocal)), g.cfg.Network, g.cfg.NoFast)
	g.server.localForwarder = &forward.Forwarder{Transport: local, IdleTimeout: maxAnswerSilence}
	g.server.passthroughForwarder = &forward.Forwarder{Transport: forward.WithSingleSend(g.newPassthroughTransport()), IdleTimeout: maxAnswerSilence}
	toPeers := g.newTransport(checkGateway)
	toPeers.ExpectContinueTimeout = peerContinueTimeout
	g.prober = &peerProber{region: g.cfg.Region, certs: g.cfg.Certs, policy: &g.policies.policy, rtts: rtt.NewPeerTable()}
	g.prober.measurePeers(toPeers)
	g.prober.dial = toPeers.DialContext
	g.server.peerForwarder = &forward.Forwarder{Transport: forward.WithSingleSend(toPeers), IdleTimeout: maxAnswerSilence}
}

// newTransport returns a transport to nodes that the rule allows.
func (g *Gateway) newTransport(rule func(identity.ID) error) *http.Transport {
	t := forward.NewTransport(g.cfg.Certs.ClientTLS(forward.ALPN, rule))
	if g.cfg.Network != nil {
		t.DialContext = g.cfg.Network.DialContext
	}
	return t
}

func checkGateway(id identity.ID) error {
	if id.Role != identity.RoleGateway {
		return errors.New("it is not a gateway")
	}
	return nil
}

// hedgeConnections makes a transport try another zone's connection in parallel to one that is slow.
func (g *Gateway) hedgeConnections(t *http.Transport) *http.Transport {
	g.connector = &forward.Connector{
		MaxHedgeDelay: g.cfg.HedgeConnect,
		Dial:          forward.NewTLSDialer(t.DialContext, t.TLSClientConfig, t.TLSHandshakeTimeout),
		OnHedge: func(won bool) {
			outcome := "lost"
			if won {
				outcome = "won"
			}
			g.metrics.hedges.WithLabelValues(outcome).Inc()
		},
	}
	t.DialTLSContext = g.connector.DialContext
	return t
}

// handshakeTimeout bounds the TLS handshake with a local instance.
const handshakeTimeout = 2 * time.Second

// newPassthroughTransport returns a transport to the region's local instances with net/http's HTTP/1.1, which
// supports bidirectional streams and upgrades. It does its own TLS handshakes: net/http offers no ALPN protocol
// for an upgrade, and the tiers require one.
func (g *Gateway) newPassthroughTransport() *http.Transport {
	cfg := g.cfg.Certs.ClientTLS(forward.ALPN, g.policies.checkLocal)
	t := forward.NewTransport(cfg)
	if g.cfg.Network != nil {
		t.DialContext = g.cfg.Network.DialContext
	}
	dial := t.DialContext
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, cfg)
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error is the one to report
			return nil, err
		}
		return c, nil
	}
	forward.CloseBodiesOnConnEnd(t)
	return t
}
