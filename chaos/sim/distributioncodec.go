package sim

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// errDamagedDistribution is the error for a stored distribution that is inconsistent.
var errDamagedDistribution = errors.New("a stored distribution is damaged: delete it and measure again")

// MarshalBinary encodes the whole distribution for UnmarshalBinary: its sums and its non-empty buckets.
func (d *Distribution) MarshalBinary() ([]byte, error) {
	b := binary.AppendVarint(nil, d.count)
	b = binary.AppendVarint(b, int64(d.sum))
	b = binary.AppendVarint(b, int64(d.minimum))
	b = binary.AppendVarint(b, int64(d.maximum))
	last := 0
	for i, c := range d.buckets {
		if c > 0 {
			b = binary.AppendUvarint(b, uint64(i-last))
			b = binary.AppendUvarint(b, c)
			last = i
		}
	}
	return b, nil
}

// UnmarshalBinary replaces the distribution by one that MarshalBinary encoded. It returns an error for other bytes.
func (d *Distribution) UnmarshalBinary(b []byte) error {
	var head [4]int64
	for i := range head {
		v, n := binary.Varint(b)
		if n <= 0 || v < 0 {
			return errDamagedDistribution
		}
		head[i], b = v, b[n:]
	}
	out := Distribution{count: head[0], sum: time.Duration(head[1]), minimum: time.Duration(head[2]), maximum: time.Duration(head[3])}
	at, seen := 0, uint64(0)
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		if n <= 0 || step > uint64(bucketIndex(math.MaxUint64)-at) {
			return errDamagedDistribution
		}
		b = b[n:]
		c, n := binary.Uvarint(b)
		if n <= 0 || c == 0 || c > uint64(out.count)-seen {
			return errDamagedDistribution
		}
		at, b, seen = at+int(step), b[n:], seen+c
		for at >= len(out.buckets) {
			out.buckets = append(out.buckets, make([]uint64, at+1-len(out.buckets))...)
		}
		out.buckets[at] += c
	}
	if seen != uint64(out.count) || out.minimum > out.maximum {
		return errDamagedDistribution
	}
	*d = out
	return nil
}
