package decision

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_790_000_000, 0).UTC()

// newChoice returns a choice among candidates of rising cost.
func newChoice(id string, at time.Time, candidates int) *Record {
	r := &Record{
		Event: EventChoice, At: at, RequestID: id, Tenant: "acme", Model: "llama-3.1-8b", Class: "standard", PromptTokens: 1000, OutputTokens: 200,
		Chosen: "w0", Reason: "least_seconds", PredictedTTFT: 0.25, Considered: candidates,
	}
	for i := range candidates {
		c := r.NewCandidate(fmt.Sprint("w", i))
		c.SetTerm(TermWait, float64(i)/4)
		c.SetTerm(TermPrefill, 0.125)
	}
	return r
}

func TestRecordsAreDecodedAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, maxTextBytes)
		r := Record{
			Event: RecordKind(rapid.IntRange(1, 3).Draw(t, "event")), At: epoch.Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "at"))),
			RequestID: text.Draw(t, "id"), Tenant: text.Draw(t, "tenant"), Model: text.Draw(t, "model"), Class: text.Draw(t, "class"),
			Chosen: text.Draw(t, "chosen"), Reason: text.Draw(t, "reason"), PromptTokens: rapid.Int64Range(0, 1e12).Draw(t, "prompt"),
		}
		if r.Event == EventEnd {
			r.Outcome, r.Status, r.Attempts = text.Draw(t, "outcome"), rapid.IntRange(0, 599).Draw(t, "status"), rapid.IntRange(0, 9).Draw(t, "attempts")
			r.FirstByte, r.Duration = time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "first")), time.Second
			r.Inputs = nil
		} else {
			r.Policy, r.Considered, r.PredictedTTFT = text.Draw(t, "policy"), rapid.IntRange(0, 1e6).Draw(t, "considered"), rapid.Float64().Draw(t, "ttft")
			for range rapid.IntRange(0, MaxCandidates).Draw(t, "candidates") {
				c := r.NewCandidate(text.Draw(t, "name"))
				c.Ineligible = text.Draw(t, "why")
				for term := range numTerms {
					if rapid.Bool().Draw(t, "has") {
						c.SetTerm(term, float64(rapid.Float32().Draw(t, "seconds")))
					}
				}
			}
			r.Inputs = []byte(text.Draw(t, "inputs"))
		}
		got, err := DecodeRecord(r.appendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Inputs) == 0 {
			got.Inputs = r.Inputs
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("decoded\n%+v\nwant\n%+v", got, r)
		}
	})
}

// TestRingKeepsTheNewestWithinItsBound writes several times the bound.
func TestRingKeepsTheNewestWithinItsBound(t *testing.T) {
	r := NewRing(256 << 10)
	const n = 10_000
	for i := range n {
		r.AddRecord(newChoice(fmt.Sprint("req_", i), epoch.Add(time.Duration(i)*time.Second), 4))
	}
	size := 0
	for _, p := range r.Parts() {
		size += len(p)
	}
	if size > 256<<10 || size < 128<<10 {
		t.Errorf("the ring holds %d bytes, want at most %d and more than half", size, 256<<10)
	}
	last := FindRequest(r.Parts(), fmt.Sprint("req_", n-1))
	if len(last.Records) != 1 || last.Records[0].Chosen != "w0" || len(last.Records[0].Candidates) != 4 {
		t.Errorf("the newest request: %+v", last.Records)
	}
	if got, want := last.Oldest, epoch.Add(time.Duration(n-last.Searched)*time.Second); !got.Equal(want) {
		t.Errorf("oldest record of %v with %d kept, want %v", got, last.Searched, want)
	}
	if gone := FindRequest(r.Parts(), "req_0"); len(gone.Records) != 0 || gone.Oldest.IsZero() {
		t.Errorf("an overwritten request: %+v", gone)
	}
	if records, refused := r.Counts(); records != n || refused != 0 {
		t.Errorf("%d records, %d refused", records, refused)
	}
}

// TestPartsStayWhileTheRingGrows compares parts with what they were when they were taken.
func TestPartsStayWhileTheRingGrows(t *testing.T) {
	r := NewRing(1)
	for i := range 100 {
		r.AddRecord(newChoice(fmt.Sprint(i), epoch, 2))
	}
	parts := r.Parts()
	before := bytes.Join(parts, nil)
	for i := range 5000 {
		r.AddRecord(newChoice(fmt.Sprint("later", i), epoch, 2))
	}
	if !bytes.Equal(before, bytes.Join(parts, nil)) {
		t.Error("parts have changed")
	}
}

// TestPartsFromContinuesWhereTheLastCallEnded reads in steps, and once too late.
func TestPartsFromContinuesWhereTheLastCallEnded(t *testing.T) {
	r := NewRing(1)
	var at, lost uint64
	seen := 0
	for i := range 3000 {
		r.AddRecord(newChoice(fmt.Sprint(i), epoch, 1))
		if i%37 == 0 {
			var parts [][]byte
			if parts, at, lost = r.PartsFrom(at); lost != 0 {
				t.Fatalf("%d bytes lost", lost)
			}
			for _, p := range parts {
				for b, rest, ok := NextRecord(p); ok; b, rest, ok = NextRecord(rest) {
					if rec, err := DecodeRecord(b); err != nil || rec.RequestID != fmt.Sprint(seen) {
						t.Fatalf("record %d is %q, %v", seen, rec.RequestID, err)
					}
					seen++
				}
			}
		}
	}
	for i := range 3000 {
		r.AddRecord(newChoice(fmt.Sprint("b", i), epoch, 1))
	}
	if _, _, lost = r.PartsFrom(at); lost == 0 {
		t.Error("a reader that is too late is not shown its loss")
	}
}

func TestKeepBestKeepsTheChosenAndTheCheapest(t *testing.T) {
	r := newChoice("a", epoch, 9)
	r.Chosen = "w7"
	r.Candidates[1].Ineligible = "draining"
	r.KeepBest()
	names := ""
	for i := range r.Candidates {
		names += r.Candidates[i].Name + " "
	}
	if names != "w7 w0 w2 w3 " || r.Considered != 9 {
		t.Errorf("kept %sof %d", names, r.Considered)
	}
}

func TestLongTextsAreCutAndNilRingsKeepNothing(t *testing.T) {
	r := NewRing(1)
	rec := newChoice(strings.Repeat("x", 5000), epoch, 1)
	r.AddRecord(rec)
	if f := FindRequest(r.Parts(), rec.RequestID); len(f.Records) != 1 || len(f.Records[0].RequestID) != maxTextBytes {
		t.Errorf("found %+v", f)
	}
	var none *Ring
	none.AddRecord(rec)
	if len(none.Parts()) != 0 || NewRing(0) != nil {
		t.Error("a ring without bytes keeps records")
	}
}

func TestAddRecordAllocatesOnlySegments(t *testing.T) {
	r, rec := NewRing(1<<20), newChoice("req_0123456789", epoch, 4)
	if n := testing.AllocsPerRun(10_000, func() { r.AddRecord(rec) }); n >= 1 {
		t.Errorf("AddRecord allocates %v times a call", n)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(newChoice("a", epoch, 3).appendTo(nil))
	f.Add((&Record{Event: EventEnd, At: epoch, RequestID: "a", Outcome: "served", Status: 200}).appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := DecodeRecord(b)
		if err != nil {
			return
		}
		again, err := DecodeRecord(rec.appendTo(nil))
		if err != nil || again.RequestID != rec.RequestID || !again.At.Equal(rec.At) || len(again.Candidates) != len(rec.Candidates) {
			t.Fatalf("%+v: %+v, %v", rec, again, err)
		}
		FindRequest([][]byte{b}, "a")
	})
}

func BenchmarkAddRecord(b *testing.B) {
	r, rec := NewRing(DefaultBytes), newChoice("req_01234567890123456789", epoch, 4)
	b.ReportAllocs()
	for b.Loop() {
		r.AddRecord(rec)
	}
}
