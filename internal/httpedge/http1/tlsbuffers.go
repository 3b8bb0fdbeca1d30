package http1

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// maxIdleTLSBuffer is how much read buffer a silent TLS connection may keep, in bytes: most events of streams
// fit.
const maxIdleTLSBuffer = 2 << 10

// Fields in which crypto/tls keeps received data: records, handshake messages, and the content of a record. It
// never shrinks them, so a connection holds as much as its largest record needed for its whole life: 4 KB after
// the certificates of two tiers, 32 KB after one large response. If a Go release moves these fields, none are
// found and connections keep the usual size.
var (
	tlsBufferOffsets = fieldOffsets[bytes.Buffer]("rawInput", "hand")
	tlsReaderOffsets = fieldOffsets[bytes.Reader]("input")
)

// fieldOffsets returns the offsets of the fields of tls.Conn with these names, if they have type T.
func fieldOffsets[T any](names ...string) (at []uintptr) {
	for _, name := range names {
		f, ok := reflect.TypeFor[tls.Conn]().FieldByName(name)
		if ok && f.Type == reflect.TypeFor[T]() {
			at = append(at, f.Offset)
		}
	}
	return at
}

// shrinkTLSBuffers releases the read buffers of a TLS connection that are larger than most and fully consumed.
// A nil connection is ignored. No read may run concurrently.
func shrinkTLSBuffers(c *tls.Conn, most int) {
	if c == nil {
		return
	}
	for _, at := range tlsReaderOffsets {
		if r := (*bytes.Reader)(unsafe.Add(unsafe.Pointer(c), at)); r.Len() == 0 {
			r.Reset(nil)
		}
	}
	for _, at := range tlsBufferOffsets {
		if b := (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(c), at)); b.Len() == 0 && b.Cap() > most {
			*b = bytes.Buffer{}
		}
	}
}
