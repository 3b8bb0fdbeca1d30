package sim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"time"
)

const (
	// octaveBits is the number of buckets per octave as a power of two: quantiles are accurate within 0.4 %.
	octaveBits = 7
	// maxValueBits bounds the distinguished values to 2^maxValueBits microseconds: 38 hours.
	maxValueBits = 37
)

// Distribution is a distribution of times in bounded memory: logarithmic buckets of 0.8 %, with exact count, sum,
// minimum and maximum. The zero value is empty. Distributions can be added.
type Distribution struct {
	buckets          []uint64
	count            int64
	sum              time.Duration
	minimum, maximum time.Duration
}

func (d *Distribution) addValue(v time.Duration) { d.addRepeated(v, 1) }

// addRepeated adds a value the given number of times.
func (d *Distribution) addRepeated(v time.Duration, times int) {
	v = max(v, 0)
	if d.count == 0 || v < d.minimum {
		d.minimum = v
	}
	d.maximum = max(d.maximum, v)
	d.count += int64(times)
	d.sum += v * time.Duration(times)
	i := bucketIndex(uint64(v / time.Microsecond))
	if i >= len(d.buckets) {
		grown := make([]uint64, min(i+1+i/4, bucketIndex(math.MaxUint64)+1))
		copy(grown, d.buckets)
		d.buckets = grown
	}
	d.buckets[i] += uint64(times)
}

// AddDistribution adds the values of another distribution.
func (d *Distribution) AddDistribution(o *Distribution) {
	if o.count == 0 {
		return
	}
	if d.count == 0 || o.minimum < d.minimum {
		d.minimum = o.minimum
	}
	d.maximum = max(d.maximum, o.maximum)
	d.count += o.count
	d.sum += o.sum
	if len(o.buckets) > len(d.buckets) {
		d.buckets = append(d.buckets, make([]uint64, len(o.buckets)-len(d.buckets))...)
	}
	for i, c := range o.buckets {
		d.buckets[i] += c
	}
}

// Count is the number of values.
func (d *Distribution) Count() int64 { return d.count }

// Mean is the mean; 0 without values.
func (d *Distribution) Mean() time.Duration {
	if d.count == 0 {
		return 0
	}
	return d.sum / time.Duration(d.count)
}

// Max is the maximum; 0 without values.
func (d *Distribution) Max() time.Duration { return d.maximum }

// Quantile is the value below which the fraction q of the values lies, 0 to 1. ok is false without values.
func (d *Distribution) Quantile(q float64) (v time.Duration, ok bool) {
	if d.count == 0 {
		return 0, false
	}
	rank := int64(math.Ceil(min(max(q, 0), 1) * float64(d.count)))
	var seen int64
	for i, c := range d.buckets {
		if seen += int64(c); seen >= rank && seen > 0 {
			return min(max(bucketMiddle(i), d.minimum), d.maximum), true
		}
	}
	return d.maximum, true
}

// ShareAtMost is the fraction of values that are at most v, 0 to 1; 0 without values.
func (d *Distribution) ShareAtMost(v time.Duration) float64 {
	if d.count == 0 {
		return 0
	}
	var seen int64
	last := bucketIndex(uint64(max(v, 0) / time.Microsecond))
	for i, c := range d.buckets {
		if i > last {
			break
		}
		seen += int64(c)
	}
	return float64(seen) / float64(d.count)
}

// WalkCumulative calls point for each step of the cumulative distribution: the fraction share of the values is at
// most v.
func (d *Distribution) WalkCumulative(point func(v time.Duration, share float64)) {
	var seen int64
	for i, c := range d.buckets {
		if c > 0 {
			seen += int64(c)
			point(bucketMiddle(i), float64(seen)/float64(d.count))
		}
	}
}

func bucketIndex(us uint64) int {
	if us < 1<<octaveBits {
		return int(us)
	}
	us = min(us, 1<<maxValueBits-1)
	shift := bits.Len64(us) - octaveBits - 1
	return (shift+1)<<octaveBits + int(us>>shift) - 1<<octaveBits
}

func bucketMiddle(i int) time.Duration {
	if i < 1<<octaveBits {
		return time.Duration(i) * time.Microsecond
	}
	shift := i>>octaveBits - 1
	low := uint64(i&(1<<octaveBits-1)+1<<octaveBits) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

// distributionJSON is the JSON form of a Distribution, in seconds.
type distributionJSON struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// MarshalJSON encodes the usual quantiles in seconds; null without values, which differs from zeros.
func (d Distribution) MarshalJSON() ([]byte, error) {
	if d.count == 0 {
		return []byte("null"), nil
	}
	at := func(q float64) float64 {
		v, _ := d.Quantile(q)
		return v.Seconds()
	}
	return json.Marshal(distributionJSON{d.count, d.Mean().Seconds(), at(.5), at(.9), at(.95), at(.99), at(.999), d.maximum.Seconds()})
}

// String is a short form of the distribution.
func (d Distribution) String() string {
	text, _ := d.MarshalJSON() // all numbers are finite
	return string(text)
}

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
