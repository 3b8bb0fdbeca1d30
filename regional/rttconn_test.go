package regional_test

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestClientRTTsReachGlobalTier: the round-trip times that the kernel measures on clients' connections reach the
// global tier, by cell.
func TestClientRTTsReachGlobalTier(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("round trips are read on Linux")
	}
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", http.HandlerFunc(replyCompletion), roomyModel("small"))
	w.waitUntilServed(g, "small")
	for range 3 { // connections are measured when they close, and one when it becomes idle
		resp, _ := w.getAnswer(g, clientCall{body: askBody, key: "key-acme", header: http.Header{"Connection": {"close"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("answered %d", resp.StatusCode)
		}
	}
	loopback := geo.CellName(geo.CellAt(geo.DemoNetworks()[0].Location))
	var got []capacity.CellRTT
	testkit.Eventually(t, "the round trips are told upwards", func() bool {
		if s := w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"}); s != nil {
			got = s.RTTs
		}
		return len(got) == 1 && got[0].Samples >= 3
	})
	if got[0].Cell != loopback || got[0].MedianMicros() <= 0 || got[0].MedianMicros() > time.Second.Microseconds() {
		t.Errorf("told %+v, want a loopback's round trip in %s", got, loopback)
	}
}
