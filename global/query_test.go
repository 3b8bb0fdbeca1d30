package global

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"
)

// lookupDNS queries a node's real socket for A (1) or TXT (16) with the client's /24 as subnet (RFC 7871). It is
// written by hand because only package dns may import the DNS library.
func lookupDNS(s *Server, name string, qtype uint16, client string) (addrs []netip.Addr, texts []string, err error) {
	c, err := net.Dial("udp", s.DNSAddrs()[0].String())
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout / 3))
	if _, err := c.Write(buildQuestion(name, qtype, client)); err != nil {
		return nil, nil, err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return nil, nil, err
	}
	return parseAnswer(b[:n])
}

func buildQuestion(name string, qtype uint16, client string) []byte {
	b := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, qtype)
	b = append(b, 0, 1)
	a := netip.MustParseAddr(client).As4()
	b = append(b, 0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0) // OPT, 1232 bytes
	return append(b, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0, a[0], a[1], a[2])
}

func parseAnswer(b []byte) (addrs []netip.Addr, texts []string, err error) {
	bad := errors.New("answer is malformed")
	if len(b) < 12 {
		return nil, nil, bad
	}
	if rcode := b[3] & 15; rcode != 0 {
		return nil, nil, errors.New("rcode " + string('0'+rcode))
	}
	at := skipName(b, 12) + 4
	for range binary.BigEndian.Uint16(b[6:]) {
		at = skipName(b, at)
		if at+10 > len(b) {
			return nil, nil, bad
		}
		kind, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+8:]))
		data := b[at+10 : at+10+size]
		at += 10 + size
		switch kind {
		case 1:
			addrs = append(addrs, netip.AddrFrom4([4]byte(data)))
		case 16:
			for len(data) > 0 {
				texts, data = append(texts, string(data[1:1+data[0]])), data[1+data[0]:]
			}
		}
	}
	return addrs, texts, nil
}

func skipName(b []byte, at int) int {
	for at < len(b) && b[at] != 0 {
		if b[at] >= 0xc0 {
			return at + 2
		}
		at += int(b[at]) + 1
	}
	return at + 1
}

// answeredRegion returns the region whose gateway the node answers with, or the error.
func answeredRegion(s *Server, client string) string {
	addrs, _, err := lookupDNS(s, testService, 1, client)
	if err != nil {
		return err.Error()
	}
	for name, a := range testGatewayAddrs {
		if len(addrs) == 1 && addrs[0] == a {
			return name
		}
	}
	return "no single gateway"
}
