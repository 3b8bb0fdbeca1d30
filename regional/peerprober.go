package regional

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/regional/rtt"
)

const (
	// probeInterval is the time between two probes of a peer without requests. Paths change slowly, but the first
	// spilled request needs a known round-trip time.
	probeInterval = 30 * time.Second
	// probeTimeout bounds one probe.
	probeTimeout = 5 * time.Second
)

// peerProber measures the round-trip times to other regions' gateways.
type peerProber struct {
	region string
	certs  *identity.Certs
	policy *atomic.Pointer[gatewayPolicy]
	rtts   *rtt.PeerTable
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// measurePeers makes a transport measure the round-trip time whenever it connects to a peer.
func (p *peerProber) measurePeers(t *http.Transport) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		begun := time.Now()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		rtt := time.Since(begun)
		if tcp, ok := c.(*net.TCPConn); ok {
			if kernel, ok := tcpRTT(tcp); ok {
				rtt = kernel
			}
		}
		p.rtts.AddSample(p.policy.Load().peerRegionOf(addr), rtt, time.Now())
		return c, nil
	}
}

// probePeers probes peers that received no request lately, until ctx ends. A probe opens a connection as for a
// request and closes it.
func (p *peerProber) probePeers(ctx context.Context) {
	tick := time.NewTicker(probeInterval / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if endpoint := p.nextProbeEndpoint(now); endpoint != "" {
				p.probeEndpoint(ctx, endpoint)
			}
		}
	}
}

// nextProbeEndpoint returns a gateway of the peer region with the oldest measurement, or "" if that is recent
// enough.
func (p *peerProber) nextProbeEndpoint(now time.Time) string {
	st := p.policy.Load()
	if !st.isReady() {
		return ""
	}
	endpoint, oldest := "", probeInterval
	for i := range st.directive.Peers {
		peer := &st.directive.Peers[i]
		if since := p.rtts.SinceMeasured(peer.Region, now); peer.Region != p.region && len(peer.Gateways) > 0 && since > oldest {
			endpoint, oldest = peer.Gateways[i%len(peer.Gateways)].Endpoint, since
		}
	}
	return endpoint
}

func (p *peerProber) probeEndpoint(ctx context.Context, endpoint string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := p.dial(ctx, "tcp", endpoint)
	if err != nil {
		return // its summary shows whether it is healthy
	}
	cfg := p.certs.ClientTLS(forward.ALPN, checkGateway)
	if host, _, err := net.SplitHostPort(endpoint); err == nil && cfg.ServerName == "" {
		cfg.ServerName = host
	}
	s := tls.Client(c, cfg)
	_ = s.HandshakeContext(ctx) // completed only so that the peer does not log a failed handshake
	_ = s.Close()
}
