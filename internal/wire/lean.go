package wire

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// leanBytes is what a TLS connection may hold of its reading while it is silent, in bytes: most events of streams fit.
const leanBytes = 2 << 10

// Where crypto/tls keeps what it has read: records and messages of the handshake, and what a record held. It never gives
// them back, so that a connection holds as much as its largest record took for as long as it lives: 4 KB after the
// certificates of two tiers, and 32 KB after one large answer. Where a release of Go has them elsewhere, none are found,
// and connections are as large as they are in any program.
var (
	tlsBuffers = fieldsOf[bytes.Buffer]("rawInput", "hand")
	tlsInput   = fieldsOf[bytes.Reader]("input")
)

// fieldsOf are where the fields of tls.Conn with these names are, if they are of type T.
func fieldsOf[T any](names ...string) (at []uintptr) {
	for _, name := range names {
		f, ok := reflect.TypeFor[tls.Conn]().FieldByName(name)
		if ok && f.Type == reflect.TypeFor[T]() {
			at = append(at, f.Offset)
		}
	}
	return at
}

// lean gives back what a TLS connection holds of its reading, where that is more than most and all of it was used. A nil
// connection holds nothing. Nobody reads of it meanwhile.
func lean(c *tls.Conn, most int) {
	if c == nil {
		return
	}
	for _, at := range tlsInput {
		if r := (*bytes.Reader)(unsafe.Add(unsafe.Pointer(c), at)); r.Len() == 0 {
			r.Reset(nil)
		}
	}
	for _, at := range tlsBuffers {
		if b := (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(c), at)); b.Len() == 0 && b.Cap() > most {
			*b = bytes.Buffer{}
		}
	}
}
