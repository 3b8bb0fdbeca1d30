// Package dnsload queries a DNS server for one name with many client subnets, as fast as it answers or at a fixed
// rate, and reports latency, lost queries, and whether each answer names the right region.
//
// It polls without sleeping, on the calling goroutine's thread, so that no server pays for wake-ups; it occupies a
// core. It does not judge a server: callers have the bounds. At a fixed rate a query's latency counts from when it
// was due, so that stalls are visible.
package dnsload

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// QueryLoad is the load to generate.
type QueryLoad struct {
	// Server is queried over UDP.
	Server netip.AddrPort
	// Name is queried for its A records.
	Name string
	// Subnets are IPv4 /24s (an address shifted right by eight), one for each query in turn.
	Subnets []uint32
	// WantOctet is the last octet of the right answer by /24. nil: any is right.
	WantOctet []byte
	// Rate is the number of queries per second. 0: as many as are answered, with Window outstanding.
	Rate float64
	// Window is the maximum number of outstanding queries without Rate. Default 128.
	Window int
	// Timeout is the time after which a query without an answer counts as lost. Default 500 ms.
	Timeout time.Duration
}

// LoadResult is the result of a QueryLoad.
type LoadResult struct {
	Sent, Answered, Lost uint64
	// Wrong answers name another region; Malformed ones are no answer to the query.
	Wrong, Malformed uint64
	SendTime         time.Duration // of sending
	P50, P99         time.Duration
	MaxLatency       time.Duration
}

// MergeCounts adds up the counts of two runs. Quantiles cannot be added; the larger ones stay.
func (r *LoadResult) MergeCounts(o *LoadResult) {
	r.Sent, r.Answered, r.Lost = r.Sent+o.Sent, r.Answered+o.Answered, r.Lost+o.Lost
	r.Wrong, r.Malformed, r.SendTime = r.Wrong+o.Wrong, r.Malformed+o.Malformed, r.SendTime+o.SendTime
	r.P50, r.P99, r.MaxLatency = max(r.P50, o.P50), max(r.P99, o.P99), max(r.MaxLatency, o.MaxLatency)
}

// String is a summary in one line.
func (r *LoadResult) String() string {
	return fmt.Sprintf("%d queries in %s, %d lost, %d wrong, %d bad, p50 %s, p99 %s, worst %s", r.Sent,
		r.SendTime.Round(time.Millisecond), r.Lost, r.Wrong, r.Malformed, r.P50, r.P99, r.MaxLatency)
}

// MakeQuery makes a query with id 0 for a name's A records with a Client Subnet of the given length. Its last octets
// are the address.
func MakeQuery(name string, source uint8) []byte {
	q := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for label := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	octets := (source + 7) / 8
	q = append(q, 0, 0, 1, 0, 1) // the root, A, IN
	q = append(q, 0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 8+octets)
	q = append(q, 0, 8, 0, 4+octets, 0, 1, source, 0)
	return append(q, make([]byte, octets)...)
}

// latencyList collects durations, for exact quantiles: those of a run fit into memory.
type latencyList []int32 // microseconds

func (l latencyList) fillQuantiles(r *LoadResult) {
	if len(l) == 0 {
		return
	}
	slices.Sort(l)
	at := func(part float64) time.Duration {
		return time.Duration(l[min(int(part*float64(len(l))), len(l)-1)]) * time.Microsecond
	}
	r.P50, r.P99, r.MaxLatency = at(0.5), at(0.99), at(1)
}
