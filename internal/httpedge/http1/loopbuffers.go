package http1

// loopBufferSizes are the sizes of the buffers for requests, in bytes.
var loopBufferSizes = [...]int{2 << 10, 8 << 10, 32 << 10, 128 << 10}

// maxFreeBuffers bounds the unused buffers of one size.
const maxFreeBuffers = 64

// loopBuffers are the unused buffers of one request loop.
type loopBuffers struct {
	free [len(loopBufferSizes)][][]byte
}

// takeBuffer returns a buffer of at least n bytes, at most the largest size.
func (p *loopBuffers) takeBuffer(n int) []byte {
	for i, size := range loopBufferSizes {
		if n > size {
			continue
		}
		if last := len(p.free[i]) - 1; last >= 0 {
			b := p.free[i][last]
			p.free[i] = p.free[i][:last]
			return b
		}
		return make([]byte, size)
	}
	return nil
}

// putBuffer takes a buffer back that nothing refers to.
func (p *loopBuffers) putBuffer(b []byte) {
	for i, size := range loopBufferSizes {
		if len(b) == size && len(p.free[i]) < maxFreeBuffers {
			p.free[i] = append(p.free[i], b)
		}
	}
}
