package sim

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"
)

const (
	// distSub is the steps of an octave as a power of two: quantiles are right within 0.4 %.
	distSub = 7
	// distTop is the greatest value that is told apart, 2^distTop microseconds: 38 hours.
	distTop = 37
)

// Dist is a distribution of times in bounded memory: logarithmic buckets of 0.8 %, with the exact count, sum, least and
// greatest. The zero value is empty. Two of them add up to that of both.
type Dist struct {
	counts      []uint64
	n           int64
	sum         time.Duration
	least, most time.Duration
}

func (d *Dist) add(v time.Duration) { d.addN(v, 1) }

// addN counts a value so many times.
func (d *Dist) addN(v time.Duration, times int) {
	v = max(v, 0)
	if d.n == 0 || v < d.least {
		d.least = v
	}
	d.most = max(d.most, v)
	d.n += int64(times)
	d.sum += v * time.Duration(times)
	i := distBucket(uint64(v / time.Microsecond))
	if i >= len(d.counts) {
		grown := make([]uint64, min(i+1+i/4, distBucket(math.MaxUint64)+1))
		copy(grown, d.counts)
		d.counts = grown
	}
	d.counts[i] += uint64(times)
}

// Merge adds what another one has counted.
func (d *Dist) Merge(o *Dist) {
	if o.n == 0 {
		return
	}
	if d.n == 0 || o.least < d.least {
		d.least = o.least
	}
	d.most = max(d.most, o.most)
	d.n += o.n
	d.sum += o.sum
	if len(o.counts) > len(d.counts) {
		d.counts = append(d.counts, make([]uint64, len(o.counts)-len(d.counts))...)
	}
	for i, c := range o.counts {
		d.counts[i] += c
	}
}

// Count is how many values there are.
func (d *Dist) Count() int64 { return d.n }

// Mean is their mean; 0 when there are none.
func (d *Dist) Mean() time.Duration {
	if d.n == 0 {
		return 0
	}
	return d.sum / time.Duration(d.n)
}

// Max is the greatest; 0 when there are none.
func (d *Dist) Max() time.Duration { return d.most }

// Quantile is the value below which this part of them lies, 0 to 1. ok is false when there are none.
func (d *Dist) Quantile(q float64) (v time.Duration, ok bool) {
	if d.n == 0 {
		return 0, false
	}
	rank := int64(math.Ceil(min(max(q, 0), 1) * float64(d.n)))
	var seen int64
	for i, c := range d.counts {
		if seen += int64(c); seen >= rank && seen > 0 {
			return min(max(distMiddle(i), d.least), d.most), true
		}
	}
	return d.most, true
}

// Share is the part of them that is at most v, 0 to 1; 0 when there are none.
func (d *Dist) Share(v time.Duration) float64 {
	if d.n == 0 {
		return 0
	}
	var seen int64
	last := distBucket(uint64(max(v, 0) / time.Microsecond))
	for i, c := range d.counts {
		if i > last {
			break
		}
		seen += int64(c)
	}
	return float64(seen) / float64(d.n)
}

// Curve calls point for each step of the cumulative distribution: the part share of the values is at most v.
func (d *Dist) Curve(point func(v time.Duration, share float64)) {
	var seen int64
	for i, c := range d.counts {
		if c > 0 {
			seen += int64(c)
			point(distMiddle(i), float64(seen)/float64(d.n))
		}
	}
}

func distBucket(us uint64) int {
	if us < 1<<distSub {
		return int(us)
	}
	us = min(us, 1<<distTop-1)
	shift := bits.Len64(us) - distSub - 1
	return (shift+1)<<distSub + int(us>>shift) - 1<<distSub
}

func distMiddle(i int) time.Duration {
	if i < 1<<distSub {
		return time.Duration(i) * time.Microsecond
	}
	shift := i>>distSub - 1
	low := uint64(i&(1<<distSub-1)+1<<distSub) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

// distText is a Dist as JSON, in seconds.
type distText struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// MarshalJSON writes the usual quantiles in seconds; null when there are no values, which is not the same as zeros.
func (d Dist) MarshalJSON() ([]byte, error) {
	if d.n == 0 {
		return []byte("null"), nil
	}
	at := func(q float64) float64 {
		v, _ := d.Quantile(q)
		return v.Seconds()
	}
	return json.Marshal(distText{d.n, d.Mean().Seconds(), at(.5), at(.9), at(.95), at(.99), at(.999), d.most.Seconds()})
}

// String is a Dist in a few words.
func (d Dist) String() string {
	text, _ := d.MarshalJSON() // of numbers that are all finite
	return string(text)
}
