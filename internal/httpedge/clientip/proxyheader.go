package clientip

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
	// ErrIncomplete means that the bytes are the beginning of a header.
	ErrIncomplete = errors.New("the PROXY header is not complete")
	// ErrMissing means that the bytes are not a header.
	ErrMissing = errors.New("the connection does not begin with a PROXY header")
	// ErrMalformed means that the bytes begin like a header and are not valid.
	ErrMalformed = errors.New("the PROXY header is malformed")
)

const (
	signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"
	prefixV1    = "PROXY "
	maxV1Bytes  = 107 // proxy-protocol.txt 2.1, including the line end
	headV2Bytes = 16
	maxV2Bytes  = headV2Bytes + 2048 // addresses take at most 216 bytes; the rest are TLVs
	tlvCRC32C   = 0x03
	familyIPv4  = 1
	familyIPv6  = 2
)

// ParseProxyHeader parses the PROXY header at the beginning of b. It returns the address that connected to the
// proxy and the length of the header. The address is invalid if the header has none: the connection is the
// proxy's own (LOCAL, as for health checks) or its origin is unknown (UNKNOWN, or a family that is not IP).
// Bytes after the header are ignored.
func ParseProxyHeader(b []byte) (src netip.AddrPort, n int, err error) {
	switch {
	case bytes.HasPrefix(b, []byte(signatureV2)):
		return parseV2(b)
	case bytes.HasPrefix(b, []byte(prefixV1)):
		return parseV1(b)
	case bytes.HasPrefix([]byte(signatureV2), b), bytes.HasPrefix([]byte(prefixV1), b):
		return src, 0, ErrIncomplete
	}
	return src, 0, ErrMissing
}

func parseV1(b []byte) (src netip.AddrPort, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxV1Bytes)], '\n')
	switch {
	case end < 0 && len(b) < maxV1Bytes:
		return src, 0, ErrIncomplete
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
	from, ok1 := parseEndpoint(f[1], f[3], f[0] == "TCP4")
	_, ok2 := parseEndpoint(f[2], f[4], f[0] == "TCP4")
	if !ok1 || !ok2 {
		return src, 0, ErrMalformed
	}
	return from, n, nil
}

func parseEndpoint(addr, port string, v4 bool) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	p, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || a.Is4() != v4 || a.Zone() != "" || strconv.FormatUint(p, 10) != port {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

func parseV2(b []byte) (src netip.AddrPort, n int, err error) {
	if len(b) < headV2Bytes {
		return src, 0, ErrIncomplete
	}
	command, family := b[12], b[13]>>4
	n = headV2Bytes + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case command>>4 != 2 || command&0xf > 1 || family > 3 || b[13]&0xf > 2 || n > maxV2Bytes:
		return src, 0, ErrMalformed
	case len(b) < n:
		return src, 0, ErrIncomplete
	}
	sizes := [4]int{0, 12, 36, 216}
	rest := b[headV2Bytes:n]
	if command&0xf == 0 { // LOCAL: addresses are to be ignored
		return src, n, nil
	}
	if len(rest) < sizes[family] || !validTLVs(b[:n], headV2Bytes+sizes[family]) {
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

// validTLVs checks the TLVs from offset at: they must end with the header, and a checksum must match (2.2.3).
func validTLVs(b []byte, at int) bool {
	for at < len(b) {
		if len(b)-at < 3 {
			return false
		}
		kind, size := b[at], int(binary.BigEndian.Uint16(b[at+1:]))
		at += 3
		if len(b)-at < size {
			return false
		}
		if kind == tlvCRC32C && (size != 4 || !checksumMatches(b, at)) {
			return false
		}
		at += size
	}
	return true
}

// checksumMatches computes the checksum of a header with its checksum field set to zero and compares.
func checksumMatches(b []byte, at int) bool {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:at])
	sum = crc32.Update(sum, table, make([]byte, 4))
	sum = crc32.Update(sum, table, b[at+4:])
	return sum == binary.BigEndian.Uint32(b[at:])
}
