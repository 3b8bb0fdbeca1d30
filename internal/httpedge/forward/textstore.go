package forward

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/spillway-lb/spillway/internal/resume"
)

// DefaultTextBytes is the default size of a TextStore, in bytes: responses of 1,000 tokens of about 25,000
// streams.
const DefaultTextBytes = 64 << 20

// restDivisor bounds one stream to the free bytes of a TextStore divided by it. So the longest texts are
// dropped first when space is scarce, and a new stream always finds some.
const restDivisor = 64

// maxIdleCompressors is the number of pooled compressors: each takes 1 MB and is busy for about 30 us.
const maxIdleCompressors = 2

// TextStore holds the texts of all streams within one bound, so that they can be resumed. The zero value stores
// none. It implements resume.TextStorage.
type TextStore struct {
	limit, heldBytes atomic.Int64

	mu              sync.Mutex
	idleCompressors []*textCompressor
}

// textCompressor compresses text. It is used for blocks of about 1 KB, so long-distance matches do not matter.
type textCompressor struct {
	out    bytes.Buffer
	writer *flate.Writer
}

// NewTextStore creates a TextStore of at most limit bytes.
func NewTextStore(limit int64) *TextStore {
	v := &TextStore{}
	v.limit.Store(limit)
	return v
}

// ReserveRoom reserves n bytes for a stream that holds taken bytes, or returns false if its share is used up.
func (v *TextStore) ReserveRoom(n, taken int) bool {
	rest := v.limit.Load() - v.heldBytes.Add(int64(n))
	if n <= 0 || rest >= 0 && int64(taken) <= rest/restDivisor {
		return true
	}
	v.heldBytes.Add(int64(-n))
	return false
}

// ReleaseStream releases the bytes of a stream. A nil splicer holds none.
func (v *TextStore) ReleaseStream(s *resume.Splicer) { s.ReleaseText() }

// HeldBytes returns the number of reserved bytes.
func (v *TextStore) HeldBytes() int64 { return v.heldBytes.Load() }

// PackBlock returns a compressed piece of text, about half its size, or nil if it cannot be compressed.
func (v *TextStore) PackBlock(piece []byte) []byte {
	p := v.takeCompressor()
	p.out.Reset()
	p.writer.Reset(&p.out)
	_, err := p.writer.Write(piece)
	if errors.Join(err, p.writer.Close()) != nil { // a bytes.Buffer accepts everything
		return nil
	}
	packed := bytes.Clone(p.out.Bytes())
	v.mu.Lock()
	if len(v.idleCompressors) < maxIdleCompressors {
		v.idleCompressors = append(v.idleCompressors, p)
	}
	v.mu.Unlock()
	return packed
}

func (v *TextStore) takeCompressor() *textCompressor {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.idleCompressors); n > 0 {
		p := v.idleCompressors[n-1]
		v.idleCompressors = v.idleCompressors[:n-1]
		return p
	}
	p := &textCompressor{}
	p.writer, _ = flate.NewWriter(&p.out, flate.BestSpeed) // fails only for invalid levels
	return p
}

// UnpackBlock implements resume.TextStorage. It is called at most once in the life of a stream.
func (v *TextStore) UnpackBlock(to, packed []byte) ([]byte, error) {
	out := bytes.NewBuffer(to)
	if _, err := io.Copy(out, flate.NewReader(bytes.NewReader(packed))); err != nil {
		return to, fmt.Errorf("unpacking a text: %w", err)
	}
	return out.Bytes(), nil
}
