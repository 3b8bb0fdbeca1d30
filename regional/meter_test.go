package regional_test

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestClientsRoundTripsGoUp: what the kernel knows of clients' connections reaches the global tier, by cell.
func TestClientsRoundTripsGoUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("round trips are read on Linux")
	}
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", http.HandlerFunc(reply), small("small"))
	w.served(g, "small")
	for range 3 { // connections that close are measured, and one that falls idle is
		resp, _ := w.ask(g, call{body: ask, key: "key-acme", header: http.Header{"Connection": {"close"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("answered %d", resp.StatusCode)
		}
	}
	loopback := geo.CellName(geo.CellOf(geo.DemoPlaces()[0].Place))
	var got []capacity.RTT
	eventually(t, "the round trips are told upwards", func() bool {
		if s := w.heard(capacity.Path{Region: "fra", Instance: "fra-gw"}); s != nil {
			got = s.RTTs
		}
		return len(got) == 1 && got[0].Samples >= 3
	})
	if got[0].Cell != loopback || got[0].Micros() <= 0 || got[0].Micros() > time.Second.Microseconds() {
		t.Errorf("told %+v, want a loopback's round trip in %s", got, loopback)
	}
}
