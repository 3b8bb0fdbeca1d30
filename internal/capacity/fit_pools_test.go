package capacity

import (
	"fmt"
	"testing"
)

// TestFittedSummaryWithPoolsIsEncodable: what pools can do counts too, and whatever Fit returns can be sent.
func TestFittedSummaryWithPoolsIsEncodable(t *testing.T) {
	s := Summary{Path: Path{Region: "r", Zone: "z", Instance: "i"}, Endpoint: "here:1", Boot: 1, Seq: 1}
	for m := range 150 {
		x := ModelCapacity{Name: fmt.Sprintf("model-%03d", m), Ready: 8, Total: 8, KVTotal: 1 << 40, KVFree: 1 << 39, MaxContext: 1 << 20}
		for p := range 8 {
			x.Pools = append(x.Pools, ModelCapacity{Name: fmt.Sprintf("pool-%d", p), Ready: 1, Total: 1, KVTotal: 1 << 40, KVFree: 1 << 39, MaxContext: 1 << 20, Headroom: [3]int64{1 << 40, 1 << 40, 1 << 40}})
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
