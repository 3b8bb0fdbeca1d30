package uplink

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestInboxMatchesOutboxOverLossyLink connects an outbox and an inbox over a link that loses, delays and reorders,
// with random summaries. A summary at the parent equals the child's summary of that number or, when summaries come in
// parts, consists of parts of earlier ones. The window and the limit of one snapshot in flight are never exceeded.
// Once the link is good, the parent gets the newest summary.
func TestInboxMatchesOutboxOverLossyLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crowded := rapid.Bool().Draw(t, "crowded")
		models := 3
		if crowded {
			models = 40
		}
		var out summaryOutbox
		in := summaryInbox{path: pathL2, boot: 1, bootLimit: 1 << 63}
		now, seq, boot := time.Unix(0, 0), uint64(0), uint64(1)
		said := map[uint64]*capacity.Summary{}
		var latest *pendingSummary
		var flying [][]byte
		var snap *capacity.Summary
		check := func(s *capacity.Summary) {
			if s == nil {
				return
			}
			if want := said[s.Seq]; !crowded && !s.Equal(*want) {
				t.Fatalf("holds %+v, said %+v", s, want)
			}
			for i := range s.Models {
				if m := s.Models[i]; uint64(m.Backlog) > s.Seq || said[uint64(m.Backlog)].FindModel(m.Name) == nil {
					t.Fatalf("model %s of statement %d was never in statement %d", m.Name, s.Seq, m.Backlog)
				}
			}
		}
		deliver := func(i int) {
			s, err := in.acceptDelta(flying[i][1:])
			if err != nil {
				t.Fatal(err)
			}
			check(s)
			if in.newest != nil {
				out.confirmUpTo(in.newest.Seq)
			}
		}
		land := func() {
			b, err := capacity.EncodeSummary(snap)
			if err != nil {
				t.Fatal(err)
			}
			s, err := in.acceptSnapshot(b)
			if err != nil {
				t.Fatal(err)
			}
			check(s)
			out.finishSnapshot(snap, now)
			snap = nil
		}
		step := func(d time.Duration) {
			now, seq = now.Add(d), seq+1
			s := capacity.Summary{Path: pathL2, Boot: boot, Seq: seq}
			for i := range models {
				if rapid.IntRange(0, 9).Draw(t, "absent") > 0 {
					s.Models = append(s.Models, &capacity.ModelCapacity{Name: fmt.Sprintf("m%02d", i), Backlog: int64(seq), Total: 1})
				}
			}
			said[seq] = &s
			latest = newPendingSummary(latest, &s)
			out.setSummary(latest)
			if b := out.nextDatagram(now); b != nil {
				if len(b) > maxDatagramBytes {
					t.Fatalf("datagram of %d bytes", len(b))
				}
				flying = append(flying, b)
			}
			if len(out.unconfirmed) > maxUnconfirmed+1 {
				t.Fatalf("%d datagrams under way", len(out.unconfirmed))
			}
			if next := out.nextSnapshot(now); next != nil {
				if snap != nil {
					t.Fatal("two snapshots under way")
				}
				snap = next
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2, 3, 4:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
					deliver(i)
					flying = slices.Delete(flying, i, i+1)
				}
			case 5:
				flying = nil
			case 6, 7:
				if snap != nil {
					land()
				}
			case 8:
				if snap != nil {
					out.finishSnapshot(nil, now)
					snap = nil
				}
			case 9:
				boot++
			}
		}
		flying = nil
		for range 30 { // a good link, on which only the number changes
			step(2 * time.Second)
			if snap != nil {
				land()
			}
			for i := range flying {
				deliver(i)
			}
			flying = nil
		}
		if in.newest == nil || in.newest.Boot != boot || in.newest.Seq != seq {
			t.Fatalf("holds %+v, the newest is %d/%d", in.newest, boot, seq)
		}
	})
}

func TestInboxHoldsLastTwoSnapshots(t *testing.T) {
	in := summaryInbox{path: pathL2, boot: 1, bootLimit: 1 << 63}
	statement := func(seq uint64) *capacity.Summary {
		return &capacity.Summary{Path: pathL2, Boot: 1, Seq: seq, Models: []*capacity.ModelCapacity{{Name: fmt.Sprint("m", seq)}}}
	}
	for seq := uint64(1); seq <= 3; seq++ {
		b, err := capacity.EncodeSummary(statement(seq))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := in.acceptSnapshot(b); err != nil || s == nil {
			t.Fatal(s, err)
		}
	}
	for base, want := range map[uint64]bool{1: false, 2: true, 3: true} {
		next := statement(10 + base)
		d := capacity.DiffSummaries(statement(base), next)
		b, err := capacity.EncodeDelta(&d)
		if err != nil {
			t.Fatal(err)
		}
		try := in
		s, err := try.acceptDelta(b)
		if err != nil || (s != nil) != want {
			t.Errorf("delta on snapshot %d: %+v %v", base, s, err)
		}
	}
}

// largeSummary is a summary of 40 models, too many for a datagram.
func largeSummary(seq uint64) *capacity.Summary {
	s := &capacity.Summary{Path: pathL2, Boot: 1, Seq: seq}
	for i := range 40 {
		s.Models = append(s.Models, &capacity.ModelCapacity{Name: fmt.Sprintf("model-%02d-with-a-name-of-some-length", i), Backlog: int64(seq), Total: 1})
	}
	return s
}

// TestPartialDeltaWaitsForSnapshot: a part without a snapshot would look like a region with little capacity.
func TestPartialDeltaWaitsForSnapshot(t *testing.T) {
	var out summaryOutbox
	now := time.Unix(0, 0)
	out.setSummary(newPendingSummary(nil, largeSummary(1)))
	if out.nextDatagram(now) != nil || out.nextSnapshot(now) == nil {
		t.Fatal("the first statement of 40 models must go as a snapshot alone")
	}
	out.finishSnapshot(largeSummary(1), now)
	out.setSummary(newPendingSummary(nil, largeSummary(2)))
	if out.nextDatagram(now) == nil {
		t.Fatal("after it, parts may go")
	}
}

// TestPartialDeltasAccumulate: two parts in turn both count, although both build on one snapshot.
func TestPartialDeltasAccumulate(t *testing.T) {
	var out summaryOutbox
	now := time.Unix(0, 0)
	in := summaryInbox{path: pathL2, boot: 1, bootLimit: 1 << 63}
	b, err := capacity.EncodeSummary(largeSummary(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.acceptSnapshot(b); err != nil {
		t.Fatal(err)
	}
	out.finishSnapshot(largeSummary(1), now)
	news := func() (n int) {
		for _, m := range in.newest.Models {
			if m.Backlog > 1 {
				n++
			}
		}
		return n
	}
	for seq := uint64(2); seq <= 3; seq++ {
		before := news()
		out.setSummary(newPendingSummary(nil, largeSummary(seq)))
		if s, err := in.acceptDelta(out.nextDatagram(now)[1:]); err != nil || len(s.Models) != 40 || news() <= before {
			t.Fatalf("part %d: %d models are news, before %d, %v", seq, news(), before, err)
		}
	}
}

// TestUnconfirmedProbesBackOff: while nothing is confirmed, four datagrams go at once and then one after each doubled
// wait, up to a second; a confirmation opens the window again.
func TestUnconfirmedProbesBackOff(t *testing.T) {
	out := summaryOutbox{probeTimeout: 100 * time.Millisecond}
	now := time.Unix(0, 0)
	seq := uint64(0)
	next := func() (waited time.Duration) {
		for ; ; waited += 10 * time.Millisecond {
			seq++
			out.setSummary(newPendingSummary(nil, &capacity.Summary{Path: pathL2, Boot: 1, Seq: seq}))
			if out.nextDatagram(now.Add(waited)) != nil {
				now = now.Add(waited)
				return waited
			}
		}
	}
	for range 2 {
		var waits []int64
		for range 9 {
			waits = append(waits, next().Milliseconds())
		}
		if want := []int64{0, 0, 0, 0, 100, 200, 400, 800, 1000}; !slices.Equal(waits, want) {
			t.Errorf("waits %v ms, want %v", waits, want)
		}
		out.confirmUpTo(seq)
	}
}

func TestRefusalLogIsBounded(t *testing.T) {
	var log logRecorder
	r := refusalLog{log: log.newLogger()}
	for i := range 3 * maxLoggedRefusals {
		r.recordRefusal(fmt.Sprint(i), reasonScope, "x")
	}
	if r.countAll() != 3*maxLoggedRefusals || len(r.logged) != maxLoggedRefusals || log.countLines("refused") != maxLoggedRefusals {
		t.Fatal(r.countAll(), len(r.logged))
	}
}

// zoneSummary is a zone with the given number of models, of which the first ten change with turn.
func zoneSummary(models int, turn int64) capacity.Summary {
	s := capacity.Summary{
		Path: capacity.Path{Region: "us", Zone: "a", Instance: "l1"}, Boot: 7, Seq: uint64(turn) + 1, Endpoint: "127.0.0.1:1",
		Acks: []capacity.LedgerAck{{Parent: "gw1", Boot: 1, Ticket: uint64(turn)}},
	}
	for i := range models {
		m := &capacity.ModelCapacity{
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
