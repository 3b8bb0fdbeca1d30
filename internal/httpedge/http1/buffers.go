package http1

import "sync"

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
	default:
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
