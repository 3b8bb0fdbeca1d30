package origin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

// Errors of a PROXY header.
var (
	// ErrMore means that the bytes so far are the beginning of a header.
	ErrMore = errors.New("the PROXY header is not complete")
	// ErrMissing means that they are none.
	ErrMissing = errors.New("the connection does not begin with a PROXY header")
	// ErrMalformed means that they look like one and are none.
	ErrMalformed = errors.New("the PROXY header is malformed")
)

const (
	signature  = "\r\n\r\n\x00\r\nQUIT\n"
	prefixV1   = "PROXY "
	maxV1      = 107 // proxy-protocol.txt 2.1, the end of the line included
	headV2     = 16
	maxV2      = headV2 + 2048 // addresses take 216 at the most; the rest are the proxy's notes (TLVs)
	tlvCRC32C  = 0x03
	familyIPv4 = 1
	familyIPv6 = 2
)

// ParseHeader reads the PROXY header that b begins with and returns who connected to the proxy and the header's length. The
// address is invalid where the header gives none: the proxy speaks for itself (LOCAL, as health checks do) or does not
// know (UNKNOWN, or a family that is no address of ours). Asked with more than a header, it reads no further.
func ParseHeader(b []byte) (src netip.AddrPort, n int, err error) {
	switch {
	case bytes.HasPrefix(b, []byte(signature)):
		return parseV2(b)
	case bytes.HasPrefix(b, []byte(prefixV1)):
		return parseV1(b)
	case bytes.HasPrefix([]byte(signature), b), bytes.HasPrefix([]byte(prefixV1), b):
		return src, 0, ErrMore
	}
	return src, 0, ErrMissing
}

func parseV1(b []byte) (src netip.AddrPort, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxV1)], '\n')
	switch {
	case end < 0 && len(b) < maxV1:
		return src, 0, ErrMore
	case end < 0 || b[end-1] != '\r':
		return src, 0, ErrMalformed
	}
	n = end + 1
	line := string(b[len(prefixV1) : end-1])
	if line == "UNKNOWN" || strings.HasPrefix(line, "UNKNOWN ") {
		return src, n, nil
	}
	f := strings.Split(line, " ")
	if len(f) != 5 || f[0] != "TCP4" && f[0] != "TCP6" {
		return src, 0, ErrMalformed
	}
	from, ok1 := endpoint(f[1], f[3], f[0] == "TCP4")
	_, ok2 := endpoint(f[2], f[4], f[0] == "TCP4")
	if !ok1 || !ok2 {
		return src, 0, ErrMalformed
	}
	return from, n, nil
}

func endpoint(addr, port string, v4 bool) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	p, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || a.Is4() != v4 || a.Zone() != "" || strconv.FormatUint(p, 10) != port {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

func parseV2(b []byte) (src netip.AddrPort, n int, err error) {
	if len(b) < headV2 {
		return src, 0, ErrMore
	}
	command, family := b[12], b[13]>>4
	n = headV2 + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case command>>4 != 2 || command&0xf > 1 || family > 3 || b[13]&0xf > 2 || n > maxV2:
		return src, 0, ErrMalformed
	case len(b) < n:
		return src, 0, ErrMore
	}
	sizes := [4]int{0, 12, 36, 216}
	rest := b[headV2:n]
	if command&0xf == 0 { // LOCAL: whatever it says of addresses is to be passed over
		return src, n, nil
	}
	if len(rest) < sizes[family] || !notes(b[:n], headV2+sizes[family]) {
		return src, 0, ErrMalformed
	}
	switch family {
	case familyIPv4:
		src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest)), binary.BigEndian.Uint16(rest[8:]))
	case familyIPv6:
		src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest)).Unmap(), binary.BigEndian.Uint16(rest[32:]))
	}
	return src, n, nil
}

// notes checks the TLVs from a place of a header on: that they end where it ends and, where one is a checksum, that it is
// right (2.2.3).
func notes(b []byte, at int) bool {
	for at < len(b) {
		if len(b)-at < 3 {
			return false
		}
		kind, size := b[at], int(binary.BigEndian.Uint16(b[at+1:]))
		at += 3
		if len(b)-at < size {
			return false
		}
		if kind == tlvCRC32C && (size != 4 || !sums(b, at)) {
			return false
		}
		at += size
	}
	return true
}

// sums computes the checksum of a header with the one that stands in it taken for zero.
func sums(b []byte, at int) bool {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:at])
	sum = crc32.Update(sum, table, make([]byte, 4))
	sum = crc32.Update(sum, table, b[at+4:])
	return sum == binary.BigEndian.Uint32(b[at:])
}
