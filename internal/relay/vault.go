package relay

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

// MaxTexts is a Vault's usual bound, in bytes: answers of 1,000 tokens of some 25,000 streams.
const MaxTexts = 64 << 20

// shareOfRest is what one stream may have taken of what a Vault has left, as a divisor. So the longest texts are given up
// first when room becomes scarce, and a stream that has just begun finds some to the very end.
const shareOfRest = 64

// idlePackers is how many packers are kept: each takes a megabyte and is busy for some 30 us.
const idlePackers = 2

// Vault keeps the texts of all streams together, within a bound, so that they can be resumed. The zero value keeps none.
// It implements resume.Store.
type Vault struct {
	max, held atomic.Int64

	mu   sync.Mutex
	idle []*packer
}

// packer makes text smaller. It was made for blocks of a kilobyte: nothing is looked for far back.
type packer struct {
	out bytes.Buffer
	w   *flate.Writer
}

// NewVault makes one for at most limit bytes.
func NewVault(limit int64) *Vault {
	v := &Vault{}
	v.max.Store(limit)
	return v
}

// Room takes n bytes for a stream that has taken so many already, or says that they are not for it.
func (v *Vault) Room(n, taken int) bool {
	rest := v.max.Load() - v.held.Add(int64(n))
	if n <= 0 || rest >= 0 && int64(taken) <= rest/shareOfRest {
		return true
	}
	v.held.Add(int64(-n))
	return false
}

// Release gives back what a stream has taken. A nil seam has taken nothing.
func (v *Vault) Release(s *resume.Seam) { s.Release() }

// Held is how many bytes are taken.
func (v *Vault) Held() int64 { return v.held.Load() }

// Pack is a piece of text made smaller, to about half; nil when that cannot be.
func (v *Vault) Pack(piece []byte) []byte {
	p := v.packer()
	p.out.Reset()
	p.w.Reset(&p.out)
	_, err := p.w.Write(piece)
	if errors.Join(err, p.w.Close()) != nil { // a buffer takes everything
		return nil
	}
	packed := bytes.Clone(p.out.Bytes())
	v.mu.Lock()
	if len(v.idle) < idlePackers {
		v.idle = append(v.idle, p)
	}
	v.mu.Unlock()
	return packed
}

func (v *Vault) packer() *packer {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.idle); n > 0 {
		p := v.idle[n-1]
		v.idle = v.idle[:n-1]
		return p
	}
	p := &packer{}
	p.w, _ = flate.NewWriter(&p.out, flate.BestSpeed) // an error is for levels that there are not
	return p
}

// Unpack implements resume.Store. It is done once in the life of a stream, if at all.
func (v *Vault) Unpack(to, packed []byte) ([]byte, error) {
	out := bytes.NewBuffer(to)
	if _, err := io.Copy(out, flate.NewReader(bytes.NewReader(packed))); err != nil {
		return to, fmt.Errorf("unpacking a text: %w", err)
	}
	return out.Bytes(), nil
}
