package dns

import (
	"strconv"
	"unsafe"
)

// swapPortBytes converts a port from network byte order to host byte order.
func swapPortBytes(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// The zone is the interface index: it only has to return unchanged to the kernel.
func formatScopeID(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseScopeID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
