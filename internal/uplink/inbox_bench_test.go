package uplink

import (
	"fmt"
	"testing"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// zoneSummary is a zone with the given number of models, of which the first ten change with turn.
func zoneSummary(models int, turn int64) capacity.Summary {
	s := capacity.Summary{
		Path: capacity.Path{Region: "us", Zone: "a", Instance: "l1"}, Boot: 7, Seq: uint64(turn) + 1, Endpoint: "127.0.0.1:1",
		Acks: []capacity.LedgerAck{{Parent: "gw1", Boot: 1, Ticket: uint64(turn)}},
	}
	for i := range models {
		m := capacity.ModelCapacity{
			Name: fmt.Sprintf("meta-llama/llama-3.1-%03d-instruct", i), Ready: 4, Total: 4, KVTotal: 1_600_000, KVFree: 1_600_000,
			SlotsTotal: 1024, SlotsFree: 1024, Headroom: [3]int64{80_000, 80_000, 80_000}, MaxContext: 131_072, CostMicros: 16_000_000,
			Hardware: []capacity.HardwareRates{{Name: "H100-SXM", Ready: 4, PrefillRate: 80_000, DecodeRate: 9_000}},
		}
		if busy := turn*7919%61 + int64(i); i < 10 {
			m.Running, m.Backlog, m.WorkAhead = busy, 1500*busy, [3]int64{800 * busy, 900 * busy, 1500 * busy}
			m.KVFree -= 2000 * busy
			m.SlotsFree -= busy
			m.Headroom = [3]int64{80_000 - 900*busy, 80_000 - 700*busy, 80_000 - 300*busy}
		}
		s.Models = append(s.Models, m)
	}
	return s
}

// BenchmarkAcceptDelta is the parent's work for each datagram of a busy zone.
func BenchmarkAcceptDelta(b *testing.B) {
	in, deltas := encodeDeltas(b, 64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.newest = in.bases[0]
		if s, err := in.acceptDelta(deltas[i%len(deltas)]); err != nil || s == nil {
			b.Fatal(s, err)
		}
	}
}

// BenchmarkEncodeChanges is the child's work for each summary and parent.
func BenchmarkEncodeChanges(b *testing.B) {
	base, next := zoneSummary(100, 0), zoneSummary(100, 5)
	b.ReportAllocs()
	for b.Loop() {
		o := summaryOutbox{usePatches: true, base: &base}
		if o.encodeChanges(&next) == nil {
			b.Fatal("it does not fit")
		}
	}
}

// encodeDeltas returns datagrams on a snapshot that the inbox holds.
func encodeDeltas(t testing.TB, n int) (*summaryInbox, [][]byte) {
	base := zoneSummary(100, 0)
	in := &summaryInbox{path: base.Path, boot: base.Boot, bootLimit: 1 << 63}
	whole, err := capacity.EncodeSummary(&base)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.acceptSnapshot(whole); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for i := range n {
		next := zoneSummary(100, int64(i)+1)
		o := summaryOutbox{usePatches: true, base: &base}
		out = append(out, o.encodeChanges(&next)[1:])
	}
	return in, out
}
