package dns

import (
	"strconv"
	"unsafe"
)

// swapped turns a port from the network's byte order into the machine's.
func swapped(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// A zone is an interface's number here: it only has to find its way back into the kernel.
func formatZone(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseZone(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
