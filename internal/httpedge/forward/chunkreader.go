package forward

import "io"

// chunkReader returns next, which returns the next piece of a body, valid until the following call, and done,
// which must be called at the end. A body with its own buffer is read there: no second buffer is held while it
// is silent.
func (f *Forwarder) chunkReader(body io.Reader) (next func() ([]byte, error), done func()) {
	if own, ok := body.(interface{ NextChunk() ([]byte, error) }); ok {
		return own.NextChunk, func() {}
	}
	buf := f.getBuffer()
	return func() ([]byte, error) {
		n, err := body.Read(*buf)
		return (*buf)[:n], err
	}, func() { f.buffers.Put(buf) }
}

func (f *Forwarder) getBuffer() *[]byte {
	if b, ok := f.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, copyBufferBytes)
	return &b
}
