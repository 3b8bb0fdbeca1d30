package dnsload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// CountCacheEntries counts the cache entries of a resolver that queries one name for every client of a contiguous
// range of networks: it queries for an address, and next for the first one that the answer's scope excludes.
func CountCacheEntries(server netip.AddrPort, name string, from, to netip.Addr) (n int, err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	q, buf := MakeQuery(name, 32), make([]byte, 1232)
	at, end := uint64(addrToUint32(from)), uint64(addrToUint32(to))
	for ; at <= end; n++ {
		binary.BigEndian.PutUint16(q, uint16(n))
		binary.BigEndian.PutUint32(q[len(q)-4:], uint32(at))
		b, err := exchangeQuery(c, q, buf)
		if err != nil {
			return n, err
		}
		scope, ok := ReadScope(b)
		if !ok || scope > 32 {
			return n, fmt.Errorf("%s answers without a Client Subnet", server)
		}
		size := uint64(1) << (32 - scope)
		at = at&^(size-1) + size
	}
	return n, nil
}

func addrToUint32(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// exchangeQuery tries up to five times.
func exchangeQuery(c *net.UDPConn, q, buf []byte) ([]byte, error) {
	for range 5 {
		if _, err := c.Write(q); err != nil {
			return nil, err
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		for {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			if n > 12 && buf[0] == q[0] && buf[1] == q[1] {
				return buf[:n], nil
			}
		}
	}
	return nil, errors.New("no answer")
}

// ReadScope returns the scope of an answer's Client Subnet.
func ReadScope(b []byte) (scope uint8, ok bool) {
	if len(b) < 12 {
		return 0, false
	}
	at := skipName(b, 12) + 4
	records := 0
	for i := 6; i < 12; i += 2 {
		records += int(binary.BigEndian.Uint16(b[i:]))
	}
	for range records {
		if at = skipName(b, at); at+10 > len(b) {
			return 0, false
		}
		rtype, data := binary.BigEndian.Uint16(b[at:]), b[at+10:]
		length := int(binary.BigEndian.Uint16(b[at+8:]))
		if length > len(data) {
			return 0, false
		}
		if rtype == 41 {
			return readSubnetScope(data[:length])
		}
		at += 10 + length
	}
	return 0, false
}

// readSubnetScope parses an OPT record's data.
func readSubnetScope(b []byte) (scope uint8, ok bool) {
	for len(b) >= 4 {
		code, length := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if b = b[4:]; length > len(b) {
			return 0, false
		}
		if code == 8 && length >= 4 {
			return b[3], true
		}
		b = b[length:]
	}
	return 0, false
}

// skipName is the offset after the name at an offset, at most the message's end.
func skipName(b []byte, at int) int {
	for at < len(b) {
		switch c := b[at]; {
		case c == 0:
			return at + 1
		case c >= 0xc0:
			return at + 2
		default:
			at += int(c) + 1
		}
	}
	return at
}
