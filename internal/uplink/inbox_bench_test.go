package uplink

import (
	"fmt"
	"testing"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// zoneOf is a zone of so many models, of which the first ten change with turn.
func zoneOf(models int, turn int64) capacity.Summary {
	s := capacity.Summary{
		Path: capacity.Path{Region: "us", Zone: "a", Instance: "l1"}, Boot: 7, Seq: uint64(turn) + 1, Endpoint: "127.0.0.1:1",
		Acks: []capacity.Ack{{Parent: "gw1", Boot: 1, Ticket: uint64(turn)}},
	}
	for i := range models {
		m := capacity.Model{
			Name: fmt.Sprintf("meta-llama/llama-3.1-%03d-instruct", i), Ready: 4, Total: 4, KVTotal: 1_600_000, KVFree: 1_600_000,
			SlotsTotal: 1024, SlotsFree: 1024, Headroom: [3]int64{80_000, 80_000, 80_000}, MaxContext: 131_072, CostMicros: 16_000_000,
			Hardware: []capacity.Hardware{{Name: "H100-SXM", Ready: 4, PrefillRate: 80_000, DecodeRate: 9_000}},
		}
		if busy := turn*7919%61 + int64(i); i < 10 {
			m.Running, m.Backlog, m.Ahead = busy, 1500*busy, [3]int64{800 * busy, 900 * busy, 1500 * busy}
			m.KVFree -= 2000 * busy
			m.SlotsFree -= busy
			m.Headroom = [3]int64{80_000 - 900*busy, 80_000 - 700*busy, 80_000 - 300*busy}
		}
		s.Models = append(s.Models, m)
	}
	return s
}

// BenchmarkTakeDelta is what a parent does with each datagram of a busy zone.
func BenchmarkTakeDelta(b *testing.B) {
	in, deltas := deltasOf(b, 64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.newest = in.bases[0]
		if s, err := in.delta(deltas[i%len(deltas)]); err != nil || s == nil {
			b.Fatal(s, err)
		}
	}
}

// BenchmarkMakeDelta is what a child does for each statement and parent.
func BenchmarkMakeDelta(b *testing.B) {
	base, next := zoneOf(100, 0), zoneOf(100, 5)
	b.ReportAllocs()
	for b.Loop() {
		o := outbox{patches: true, base: &base}
		if o.encode(&next) == nil {
			b.Fatal("it does not fit")
		}
	}
}

// deltasOf are datagrams on a snapshot that the inbox holds.
func deltasOf(t testing.TB, n int) (*inbox, [][]byte) {
	base := zoneOf(100, 0)
	in := &inbox{path: base.Path, boot: base.Boot, most: 1 << 63}
	whole, err := capacity.Encode(&base)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.snapshot(whole); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for i := range n {
		next := zoneOf(100, int64(i)+1)
		o := outbox{patches: true, base: &base}
		out = append(out, o.encode(&next)[1:])
	}
	return in, out
}
