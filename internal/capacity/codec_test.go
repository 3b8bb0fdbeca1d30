package capacity

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

func TestSummaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSummary(t)
		b, err := EncodeSummary(&s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeSummary(b)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(s) {
			t.Fatalf("got  %+v\nwant %+v", got, s)
		}
	})
}

// TestUnknownFieldsArePreserved plays a newer version that added a field to every message.
func TestUnknownFieldsArePreserved(t *testing.T) {
	s := MergeSummaries(busySummary(2), Summary{})
	s.Acks = []LedgerAck{{Parent: "g", Boot: 1, Ticket: 2}}
	s.Demand = []CellDemand{{Service: "s", Model: "m", Cell: "c", TokensPerSec: 4}}
	s.RTTs = []CellRTT{{Cell: "c", Samples: 1, TotalMicros: 2, AgeSec: 3}}
	p := summaryToPB(&s)
	added := protowire.AppendBytes(protowire.AppendTag(nil, 999, protowire.BytesType), []byte("from the future"))
	for _, m := range []proto.Message{p, p.Models[1], p.Models[1].Hardware[0], p.Acks[0], p.Demand[0], p.Rtts[0]} {
		m.ProtoReflect().SetUnknown(added)
	}
	sent, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeSummary(sent)
	if err != nil {
		t.Fatal(err)
	}
	again, err := EncodeSummary(got)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(again), "from the future"); n != 6 || string(again) != string(sent) {
		t.Fatalf("%d of 6 unknown fields survive; same bytes: %v", n, string(again) == string(sent))
	}
}

func TestInvalidSummariesAreRefused(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for name, spoil := range map[string]func(*Summary){
		"negative":         func(s *Summary) { s.Models[0].Backlog = -1 },
		"absurd":           func(s *Summary) { s.Models[0].Running = MaxAmount + 1 },
		"absurd rate":      func(s *Summary) { s.Models[0].Hardware[0].PrefillRate = MaxAmount + 1 },
		"ready over total": func(s *Summary) { s.Models[0].Ready = s.Models[0].Total + 1 },
		"free over total":  func(s *Summary) { s.Models[0].KVFree = s.Models[0].KVTotal + 1 },
		"disorder":         func(s *Summary) { s.Models[0], s.Models[1] = s.Models[1], s.Models[0] },
		"twice":            func(s *Summary) { s.Models[1].Name = s.Models[0].Name },
		"no name":          func(s *Summary) { s.Models[0].Name = "" },
		"long name":        func(s *Summary) { s.Models[1].Name = long },
		"long endpoint":    func(s *Summary) { s.Endpoint = long },
		"slash":            func(s *Summary) { s.Path.Zone = "a/b" },
		"control":          func(s *Summary) { s.Path.Zone = "a\n" },
		"not UTF-8":        func(s *Summary) { s.Models[1].Name = "z\xff" },
		"prefix twice":     func(s *Summary) { s.Models[0].Prefixes = []PrefixEntry{{1, 5}, {1, 4}} },
		"prefix disorder":  func(s *Summary) { s.Models[0].Prefixes = []PrefixEntry{{1, 4}, {2, 5}} },
		"ack twice":        func(s *Summary) { s.Acks = []LedgerAck{{Parent: "g"}, {Parent: "g"}} },
		"demand twice":     func(s *Summary) { s.Demand = []CellDemand{{Cell: "c"}, {Cell: "c"}} },
		"negative demand":  func(s *Summary) { s.Demand = []CellDemand{{Cell: "c", TokensPerSec: -5}} },
		"outcome twice":    func(s *Summary) { s.Outcomes = []OutcomeCounts{{Model: "m"}, {Model: "m"}} },
		"negative outcome": func(s *Summary) { s.Outcomes = []OutcomeCounts{{Model: "m", Failures: -1}} },
		"absurd times":     func(s *Summary) { s.Outcomes = []OutcomeCounts{{Model: "m", TTFT: TTFTHistogram{5: MaxAmount + 1}}} },
		"rtt twice":        func(s *Summary) { s.RTTs = []CellRTT{{Cell: "c"}, {Cell: "c"}} },
		"rtt of no cell":   func(s *Summary) { s.RTTs = []CellRTT{{Samples: 1}} },
		"network twice":    func(s *Summary) { s.Networks = []ClientNetwork{{Cell: "c", Number: 7}, {Cell: "c", Number: 7}} },
		"no network":       func(s *Summary) { s.Networks = []ClientNetwork{{Cell: "c", Number: 1 << 30}} },
		"negative network": func(s *Summary) { s.Networks = []ClientNetwork{{Cell: "c", TokensPerSec: -1}} },
		"negative load":    func(s *Summary) { s.Models[0].WarmMillis = -1 },
		"negative rtt":     func(s *Summary) { s.RTTs = []CellRTT{{Cell: "c", TotalMicros: -1}} },
		"absurd rtt":       func(s *Summary) { s.RTTs = []CellRTT{{Cell: "c", AgeSec: MaxAmount + 1}} },
		"many acks": func(s *Summary) {
			for i := range MaxAcks + 1 {
				s.Acks = append(s.Acks, LedgerAck{Parent: fmt.Sprintf("%03d", i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := busySummary(2)
			spoil(&s)
			if _, err := EncodeSummary(&s); err == nil {
				t.Error("encoded")
			}
			b, err := proto.Marshal(summaryToPB(&s))
			if err != nil {
				return // protobuf itself refuses it
			}
			if _, err := DecodeSummary(b); err == nil {
				t.Error("decoded")
			}
			fit := FitToLimits(s)
			if _, err := EncodeSummary(&fit); err != nil && s.Path.checkPath() == nil && len(s.Endpoint) <= MaxName {
				t.Errorf("encoding after Fit: %v", err)
			}
		})
	}
}

func TestTooLargeSummaryIsRefused(t *testing.T) {
	s := busySummary(200)
	if _, err := EncodeSummary(&s); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	if _, err := DecodeSummary(make([]byte, MaxEncoded+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	fit := FitToLimits(s)
	b, err := EncodeSummary(&fit)
	if err != nil {
		t.Fatal(err)
	}
	if len(fit.Models) != 200 || len(b) > MaxEncoded {
		t.Fatalf("%d models in %d bytes", len(fit.Models), len(b))
	}
	if len(s.Models[0].Prefixes) != MaxPrefixes {
		t.Fatal("Fit changed its argument")
	}
}

func TestFitKeepsTheLargestDemand(t *testing.T) {
	s := Summary{Path: Path{Region: "us", Instance: "g"}}
	for i := range 2 * MaxDemand {
		s.Demand = append(s.Demand, CellDemand{Service: "chat", Model: "m", Cell: fmt.Sprintf("c%05d", i), TokensPerSec: int64(i)})
	}
	fit := FitToLimits(s)
	if len(fit.Demand) != MaxDemand || fit.Demand[0].TokensPerSec != MaxDemand {
		t.Fatalf("%d demands, the least %d", len(fit.Demand), fit.Demand[0].TokensPerSec)
	}
}

func TestFitKeepsValidSummaryUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSummary(t)
		if got := FitToLimits(s); !got.Equal(s) {
			t.Fatalf("changed %+v to %+v", s, got)
		}
	})
}

func TestPrefixColumnsOfUnequalLengthAreRefused(t *testing.T) {
	b, _ := proto.Marshal(&capacitypb.Summary{Models: []*capacitypb.Model{{Name: "m", PrefixHashes: []uint64{1}}}})
	if _, err := DecodeSummary(b); err == nil {
		t.Fatal("decoded")
	}
}

func FuzzDecodeSummary(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		s := busySummary(n)
		b, err := EncodeSummary(&s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSummary(b)
		if err != nil {
			return
		}
		again, err := EncodeSummary(s)
		if err != nil {
			t.Fatalf("decoded but cannot be encoded: %v", err)
		}
		back, err := DecodeSummary(again)
		if err != nil || !back.Equal(*s) {
			t.Fatalf("does not come back the same: %v", err)
		}
	})
}

func BenchmarkEncodeSummary(b *testing.B) {
	s := busySummary(16)
	for b.Loop() {
		if _, err := EncodeSummary(&s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSummary(b *testing.B) {
	s := busySummary(16)
	data, _ := EncodeSummary(&s)
	for b.Loop() {
		if _, err := DecodeSummary(data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFittedSummaryWithPoolsIsEncodable: the capacities of pools count too, and everything that Fit returns can be encoded.
func TestFittedSummaryWithPoolsIsEncodable(t *testing.T) {
	s := Summary{Path: Path{Region: "r", Zone: "z", Instance: "i"}, Endpoint: "here:1", Boot: 1, Seq: 1}
	for m := range 150 {
		x := &ModelCapacity{Name: fmt.Sprintf("model-%03d", m), Ready: 8, Total: 8, KVTotal: 1 << 40, KVFree: 1 << 39, MaxContext: 1 << 20}
		for p := range 8 {
			x.Pools = append(x.Pools, &ModelCapacity{Name: fmt.Sprintf("pool-%d", p), Ready: 1, Total: 1, KVTotal: 1 << 40, KVFree: 1 << 39, MaxContext: 1 << 20, Headroom: [3]int64{1 << 40, 1 << 40, 1 << 40}})
		}
		s.Models = append(s.Models, x)
	}
	out := FitToLimits(s)
	if len(out.Models) != len(s.Models) {
		t.Fatalf("%d of %d models are left, where leaving out what pools can do is enough", len(out.Models), len(s.Models))
	}
	if b, err := EncodeSummary(&out); err != nil {
		t.Fatalf("what fits cannot be sent: %v, %d bytes", err, len(b))
	}
}
