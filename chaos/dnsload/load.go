package dnsload

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Load is what to ask.
type Load struct {
	// Server is asked over UDP.
	Server netip.AddrPort
	// Name is asked for its A records.
	Name string
	// Subnets are IPv4 /24s (an address shifted right by eight), one for each query in turn.
	Subnets []uint32
	// Want is the last octet of the right answer by /24. Nil: any is right.
	Want []byte
	// Rate is how many queries are sent in a second. 0: as many as are answered, Window outstanding.
	Rate float64
	// Window is how many queries are outstanding at most where there is no Rate. Default 128.
	Window int
	// Patience is how long an answer may take before its query counts as lost. Default 500 ms.
	Patience time.Duration
}

// Result is what came of a Load.
type Result struct {
	Sent, Answered, Lost uint64
	// Wrong answers name another region; Bad ones are no answer to the question.
	Wrong, Bad uint64
	Took       time.Duration // of sending
	P50, P99   time.Duration
	Worst      time.Duration
}

// Merge adds up the counts of two runs. Quantiles do not add; the larger ones stay.
func (r *Result) Merge(o *Result) {
	r.Sent, r.Answered, r.Lost = r.Sent+o.Sent, r.Answered+o.Answered, r.Lost+o.Lost
	r.Wrong, r.Bad, r.Took = r.Wrong+o.Wrong, r.Bad+o.Bad, r.Took+o.Took
	r.P50, r.P99, r.Worst = max(r.P50, o.P50), max(r.P99, o.P99), max(r.Worst, o.Worst)
}

// String is one line.
func (r *Result) String() string {
	return fmt.Sprintf("%d queries in %s, %d lost, %d wrong, %d bad, p50 %s, p99 %s, worst %s", r.Sent,
		r.Took.Round(time.Millisecond), r.Lost, r.Wrong, r.Bad, r.P50, r.P99, r.Worst)
}

// Question makes a query of id 0 for a name's A records with a Client Subnet of the given length. Its last octets are
// the address's.
func Question(name string, source uint8) []byte {
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

// latencies gathers durations, for quantiles without loss: a run's fit into memory.
type latencies []int32 // microseconds

func (l latencies) fill(r *Result) {
	if len(l) == 0 {
		return
	}
	slices.Sort(l)
	at := func(part float64) time.Duration {
		return time.Duration(l[min(int(part*float64(len(l))), len(l)-1)]) * time.Microsecond
	}
	r.P50, r.P99, r.Worst = at(0.5), at(0.99), at(1)
}
