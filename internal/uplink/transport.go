package uplink

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/netif"
)

const (
	handshakeTimeout        = 3 * time.Second
	idleTimeout             = 6 * time.Second
	keepAlivePeriod         = 2 * time.Second
	maxStreams              = 8
	maxUnverifiedHandshakes = 50 // handshakes per second, beyond which addresses must be verified first
)

// newQUICConfig is shared by both ends; uni is how many unidirectional streams the other side may have open.
func newQUICConfig(uni int64) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: handshakeTimeout, MaxIdleTimeout: idleTimeout, KeepAlivePeriod: keepAlivePeriod,
		MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: uni, EnableDatagrams: true,
		InitialStreamReceiveWindow: 128 << 10, MaxStreamReceiveWindow: 1 << 20,
		InitialConnectionReceiveWindow: 256 << 10, MaxConnectionReceiveWindow: 4 << 20,
	}
}

// listenUDP opens a socket; nil: on the system's network.
func listenUDP(nw netif.HostNetwork, addr string) (net.PacketConn, error) {
	if nw != nil {
		return nw.ListenPacket(addr)
	}
	return net.ListenPacket("udp", addr)
}

// deriveResetKey derives the stateless-reset key (RFC 9000, section 10.3) from the node's private key, so that
// children of a crashed parent get a reset from its successor at once. Nil when the key cannot be read.
func deriveResetKey(cfg *tls.Config) *quic.StatelessResetKey {
	if cfg.GetConfigForClient == nil {
		return nil
	}
	one, err := cfg.GetConfigForClient(nil)
	if err != nil || len(one.Certificates) == 0 {
		return nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(crypto.PrivateKey(one.Certificates[0].PrivateKey))
	if err != nil {
		return nil
	}
	mac := hmac.New(sha256.New, der)
	mac.Write([]byte("spillway uplink stateless reset"))
	return (*quic.StatelessResetKey)(mac.Sum(nil))
}

// resolveParent finds the address to dial: a literal as it is, a name through the system's resolver.
func resolveParent(ctx context.Context, hostport string) (*net.UDPAddr, error) {
	if ap, err := netip.ParseAddrPort(hostport); err == nil {
		return net.UDPAddrFromAddrPort(ap), nil
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("parent address: %w", err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(ips[0].Unmap(), uint16(n))), nil
}

// handshakeRateMeter detects a rate of handshakes at which their addresses may be forged.
type handshakeRateMeter struct{ second, count atomic.Int64 }

func (s *handshakeRateMeter) isOverLimit(net.Addr) bool {
	if now := time.Now().Unix(); s.second.Swap(now) != now {
		s.count.Store(0)
	}
	return s.count.Add(1) > maxUnverifiedHandshakes
}
