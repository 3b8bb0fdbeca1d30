package sim

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// errKept is what is wrong with a Dist that was kept.
var errKept = errors.New("a kept distribution is damaged: delete it and measure anew")

// MarshalBinary writes the distribution whole, as UnmarshalBinary reads it: what adds up to it and its buckets that are not empty.
func (d *Dist) MarshalBinary() ([]byte, error) {
	b := binary.AppendVarint(nil, d.n)
	b = binary.AppendVarint(b, int64(d.sum))
	b = binary.AppendVarint(b, int64(d.least))
	b = binary.AppendVarint(b, int64(d.most))
	last := 0
	for i, c := range d.counts {
		if c > 0 {
			b = binary.AppendUvarint(b, uint64(i-last))
			b = binary.AppendUvarint(b, c)
			last = i
		}
	}
	return b, nil
}

// UnmarshalBinary replaces the distribution by one that MarshalBinary wrote. The error is that of bytes which it did not write.
func (d *Dist) UnmarshalBinary(b []byte) error {
	var head [4]int64
	for i := range head {
		v, n := binary.Varint(b)
		if n <= 0 || v < 0 {
			return errKept
		}
		head[i], b = v, b[n:]
	}
	out := Dist{n: head[0], sum: time.Duration(head[1]), least: time.Duration(head[2]), most: time.Duration(head[3])}
	at, seen := 0, uint64(0)
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		if n <= 0 || step > uint64(distBucket(math.MaxUint64)-at) {
			return errKept
		}
		b = b[n:]
		c, n := binary.Uvarint(b)
		if n <= 0 || c == 0 || c > uint64(out.n)-seen {
			return errKept
		}
		at, b, seen = at+int(step), b[n:], seen+c
		for at >= len(out.counts) {
			out.counts = append(out.counts, make([]uint64, at+1-len(out.counts))...)
		}
		out.counts[at] += c
	}
	if seen != uint64(out.n) || out.least > out.most {
		return errKept
	}
	*d = out
	return nil
}
