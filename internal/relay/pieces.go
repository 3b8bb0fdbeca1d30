package relay

import "io"

// pieces returns how the next piece of a body is had, which is valid until the one after it, and what to do in the end. A
// body that has its pieces in a buffer of its own is asked for them there: none is held for it while it is silent.
func (f *Forwarder) pieces(body io.Reader) (next func() ([]byte, error), done func()) {
	if own, ok := body.(interface{ Next() ([]byte, error) }); ok {
		return own.Next, func() {}
	}
	buf := f.buffer()
	return func() ([]byte, error) {
		n, err := body.Read(*buf)
		return (*buf)[:n], err
	}, func() { f.buffers.Put(buf) }
}

func (f *Forwarder) buffer() *[]byte {
	if b, ok := f.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, bufferBytes)
	return &b
}
