package capacity

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// checkDecodersAgree fails unless the decoder returns what DecodeDelta returns. It reports whether the delta was decoded
// into the decoder's own memory.
func checkDecodersAgree(t interface{ Fatalf(string, ...any) }, x *DeltaDecoder, b []byte) bool {
	want, wantErr := DecodeDelta(b)
	got, err := x.DecodeDelta(b)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("error is %v, want %v", err, wantErr)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("decoded %+v\nwant    %+v", got, want)
	}
	return got == &x.delta
}

// TestDeltaDecoderMatchesDecodeDelta: a decoder that has decoded other deltas before returns what DecodeDelta returns,
// and what was made of earlier deltas does not change.
func TestDeltaDecoderMatchesDecodeDelta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x DeltaDecoder
		var made, copies []Summary
		for range 3 {
			base, next := genPair(t)
			if rapid.Bool().Draw(t, "amounts only") {
				next = cloneSummary(base)
				next.Seq++
				for i := range next.Models {
					next.Models[i].Backlog = rapid.Int64Range(0, 9).Draw(t, "backlog")
				}
			}
			d := DiffSummaries(&base, &next)
			d.CompactChanges(&base)
			b, err := EncodeDelta(&d)
			if err != nil {
				t.Fatal(err)
			}
			checkDecodersAgree(t, &x, b)
			back, err := x.DecodeDelta(b)
			if err != nil || back.CheckAgainst(&base) != nil {
				t.Fatal(err, back.CheckAgainst(&base))
			}
			s := back.ApplyTo(&base)
			if !s.Equal(next) {
				t.Fatalf("got  %+v\nwant %+v", s, next)
			}
			made, copies = append(made, s), append(copies, cloneSummary(s))
		}
		for i := range made {
			if !made[i].Equal(copies[i]) {
				t.Fatalf("a later delta changed summary %d", i)
			}
		}
	})
}

// TestUsualDeltasNeedNoMessage: a delta of a busy zone is decoded with one allocation, its acks.
func TestUsualDeltasNeedNoMessage(t *testing.T) {
	base, next := busySummary(8), busySummary(8)
	next.Seq, next.Acks, next.Demand, next.RTTs = base.Seq+1, []LedgerAck{{Parent: "gw1", Boot: 1, Ticket: 7}}, base.Demand, base.RTTs
	for i := range next.Models {
		next.Models[i].Backlog, next.Models[i].Running = 5, 3
	}
	d := DiffSummaries(&base, &next)
	d.CompactChanges(&base)
	b, err := EncodeDelta(&d)
	if err != nil {
		t.Fatal(err)
	}
	var x DeltaDecoder
	if !checkDecodersAgree(t, &x, b) {
		t.Fatal("decoded by way of a message")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = x.DecodeDelta(b) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDeltaDecoder: a decoder accepts what DecodeDelta accepts, and returns the same.
func FuzzDeltaDecoder(f *testing.F) {
	base, next := busySummary(3), busySummary(3)
	next.Models[1].Backlog = 5
	d := DiffSummaries(&base, &next)
	d.CompactChanges(&base)
	b, err := EncodeDelta(&d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, b)
	whole := DiffSummaries(&Summary{}, &next)
	if b, err = EncodeDelta(&whole); err != nil {
		f.Fatal(err)
	}
	f.Add(b, []byte{0x12, 0x04, 0x0a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var x DeltaDecoder
		for _, b := range [][]byte{one, two, one} {
			checkDecodersAgree(t, &x, b)
		}
	})
}
