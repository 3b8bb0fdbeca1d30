package wire

import "sync"

const (
	// bufferBytes is the size of a buffer that is read into: a head must fit, and most pieces of streams do.
	bufferBytes = 16 << 10
	// heldBytes is that of a buffer which cannot be given back while a connection is silent: under TLS. What comes in larger
	// pieces is read into a large one while it does.
	heldBytes = 1 << 10
)

var (
	buffers     = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}
	heldBuffers = sync.Pool{New: func() any { b := make([]byte, heldBytes); return &b }}
)

func getBuffer(held bool) *[]byte {
	if held {
		return heldBuffers.Get().(*[]byte)
	}
	return buffers.Get().(*[]byte)
}

func putBuffer(b *[]byte) {
	switch {
	case b == nil:
	case len(*b) == heldBytes:
		heldBuffers.Put(b)
	default:
		buffers.Put(b)
	}
}

// output is a pooled buffer that is written from.
type output struct{ b []byte }

// maxKept bounds what an output may have grown to and still be kept.
const maxKept = 64 << 10

var outputs = sync.Pool{New: func() any { return &output{b: make([]byte, 0, 4<<10)} }}

func getOutput() *output {
	o := outputs.Get().(*output)
	o.b = o.b[:0]
	return o
}

func putOutput(o *output) {
	if o != nil && cap(o.b) <= maxKept {
		outputs.Put(o)
	}
}
