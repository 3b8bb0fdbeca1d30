package http1

import (
	"bytes"
	"crypto/tls"
	"net"
	"reflect"
	"sync"
	"syscall"
	"unsafe"
)

const (
	// readBufferBytes is the size of a read buffer, in bytes. A head must fit in it; most pieces of streams do.
	readBufferBytes = 16 << 10
	// smallBufferBytes is the size, in bytes, of a buffer that cannot be released while a connection is silent,
	// as under TLS. Larger pieces are read into a large buffer while they arrive.
	smallBufferBytes = 1 << 10
)

var (
	readBuffers  = sync.Pool{New: func() any { b := make([]byte, readBufferBytes); return &b }}
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBufferBytes); return &b }}
)

func getBuffer(held bool) *[]byte {
	if held {
		return smallBuffers.Get().(*[]byte)
	}
	return readBuffers.Get().(*[]byte)
}

func putBuffer(b *[]byte) {
	switch {
	case b == nil:
	case len(*b) == smallBufferBytes:
		smallBuffers.Put(b)
	case len(*b) == readBufferBytes:
		readBuffers.Put(b)
	}
}

// outputBuffer is a pooled write buffer.
type outputBuffer struct{ b []byte }

// maxPooledOutput bounds the size of an output buffer that goes back to the pool, in bytes.
const maxPooledOutput = 64 << 10

var outputPool = sync.Pool{New: func() any { return &outputBuffer{b: make([]byte, 0, 4<<10)} }}

func getOutput() *outputBuffer {
	o := outputPool.Get().(*outputBuffer)
	o.b = o.b[:0]
	return o
}

func putOutput(o *outputBuffer) {
	if o != nil && cap(o.b) <= maxPooledOutput {
		outputPool.Put(o)
	}
}

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

// clientWriter writes to a client. In eager mode it does not block: bytes that the kernel does not accept at
// once are buffered for flushUnsent.
type clientWriter struct {
	net.Conn
	rawConn     syscall.RawConn
	nonBlocking bool
	unsent      []byte

	tryWrite func(fd uintptr) // writeNow, bound once
	p        []byte
	n        int
	err      error
}

func newClientWriter(c net.Conn, tcp *net.TCPConn) *clientWriter {
	o := &clientWriter{Conn: c, rawConn: rawConnOf(tcp)}
	o.tryWrite = o.writeNow
	return o
}

// NetConn returns the underlying connection.
func (o *clientWriter) NetConn() net.Conn { return o.Conn }

// Write implements net.Conn.
func (o *clientWriter) Write(p []byte) (int, error) {
	if !o.nonBlocking {
		return o.Conn.Write(p)
	}
	if len(o.unsent) > 0 {
		o.unsent = append(o.unsent, p...)
		return len(p), nil
	}
	o.p, o.n, o.err = p, 0, nil
	err := o.rawConn.Control(o.tryWrite) // Control only holds the descriptor open
	o.p = nil
	switch {
	case err != nil:
		return 0, err
	case o.err != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Source: o.LocalAddr(), Addr: o.RemoteAddr(), Err: o.err}
	}
	if o.n < len(p) {
		o.unsent = append(o.unsent, p[o.n:]...)
	}
	return len(p), nil
}

// flushUnsent writes the buffered bytes within the write timeout.
func (o *clientWriter) flushUnsent() error {
	rest := o.unsent
	o.unsent = nil
	_, err := o.Conn.Write(rest)
	return err
}
