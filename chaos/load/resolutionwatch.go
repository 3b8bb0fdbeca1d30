package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// resolutionWatch observes the messages of one resolution: it counts queries and their failures, and reads the TTL,
// which net.Resolver does not return.
type resolutionWatch struct {
	counts   *dnsCounts
	deadline time.Time    // of the server; net.Resolver alone waits for five seconds
	minTTL   atomic.Int64 // lowest TTL seen in seconds, plus one; 0 means none
}

func (w *resolutionWatch) answerTTL() time.Duration {
	if n := w.minTTL.Load(); n > 0 {
		return time.Duration(n-1) * time.Second
	}
	return defaultTTL
}

func (w *resolutionWatch) dialServer(ctx context.Context, network, server string, local netip.Addr) (net.Conn, error) {
	if !time.Now().Before(w.deadline) {
		return nil, context.DeadlineExceeded // a second attempt of net.Resolver itself
	}
	dialer := net.Dialer{LocalAddr: localAddrFor(network, local), Deadline: w.deadline}
	conn, err := dialer.DialContext(ctx, network, server)
	if err != nil {
		w.counts.queries.Add(1)
		w.counts.failedQueries.Add(1)
		return nil, fmt.Errorf("reaching the DNS server %s: %w", server, err)
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		return &queryConn{UDPConn: udp, watch: w}, nil
	}
	return &streamConn{Conn: conn, watch: w}, nil
}

// localAddrFor is the local address for a network, or nil to let the system choose.
func localAddrFor(network string, local netip.Addr) net.Addr {
	switch {
	case !local.IsValid():
		return nil
	case strings.HasPrefix(network, "udp"):
		return &net.UDPAddr{IP: local.AsSlice()}
	}
	return &net.TCPAddr{IP: local.AsSlice()}
}

const dnsHeaderBytes = 12

// readAnswer returns a response's code and the lowest TTL of its answers, -1 if there are none; false when the
// response is malformed.
func readAnswer(msg []byte) (rcode int, ttl int64, ok bool) {
	if len(msg) < dnsHeaderBytes || msg[2]&0x80 == 0 {
		return 0, 0, false
	}
	rcode, ttl = int(msg[3]&0x0f), -1
	at := dnsHeaderBytes
	for range binary.BigEndian.Uint16(msg[4:]) {
		if at = skipName(msg, at); at < 0 || at+4 > len(msg) {
			return 0, 0, false
		}
		at += 4
	}
	for range binary.BigEndian.Uint16(msg[6:]) {
		if at = skipName(msg, at); at < 0 || at+10 > len(msg) {
			return 0, 0, false
		}
		this := int64(binary.BigEndian.Uint32(msg[at+4:]))
		if ttl < 0 || this < ttl {
			ttl = this
		}
		at += 10 + int(binary.BigEndian.Uint16(msg[at+8:]))
		if at > len(msg) {
			return 0, 0, false
		}
	}
	return rcode, ttl, true
}

// skipName returns the offset of the end of a name, or -1.
func skipName(msg []byte, at int) int {
	for at < len(msg) {
		switch n := int(msg[at]); {
		case n == 0:
			return at + 1
		case n&0xc0 == 0xc0:
			if at+2 > len(msg) {
				return -1
			}
			return at + 2
		case n&0xc0 != 0:
			return -1
		default:
			at += 1 + n
		}
	}
	return -1
}
