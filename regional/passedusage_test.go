package regional_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/billing"
)

// A gRPC call and a WebSocket leave one usage record each, with the bytes transferred. Those that no worker
// accepted leave none.
func TestPassthroughUsageIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir, c.Registry = dir, reg })
	callee := newGRPCWorker(t)
	url, _ := startEchoWorker(t, startSimWorker(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, GRPC: "http://" + callee.addr, Weight: 1})
	chat := clientCall{key: "key-acme", body: askBody}
	testkit.Eventually(t, "the zone serves", func() bool { resp, _ := w.getAnswer(g, chat); return resp.StatusCode == 200 })
	conn := w.dialGRPC(g, insecure.NewCredentials())
	in, out := encodeInferRequest("small"), []byte(nil)
	requireNoError(t, conn.Invoke(withAPIKey(t.Context()), inferMethod, &in, &out))
	if err := conn.Invoke(withAPIKey(t.Context()), inferMethod, &[]byte{0x12, 1, 'x'}, &out); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	resp, c, r := dialWebSocket(t, g, "/v1/realtime?model=small", "key-europe")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.StatusCode)
	}
	expectLine(t, r, "hello")
	_, _ = io.WriteString(c, "one\n")
	expectLine(t, r, "re:one")
	_, _ = io.WriteString(c, "bye\n")
	_, _ = io.ReadAll(r)
	if resp, _, _ := dialWebSocket(t, g, "/v1/realtime?model=small&deny=1", "key-europe"); resp.StatusCode != http.StatusTeapot {
		t.Error(resp.StatusCode)
	}
	requireNoError(t, conn.Close())
	requireNoError(t, g.Stop(stopContext(t)))
	got, err := billing.ReadFiles([]string{dir}, []string{"tenant"})
	requireNoError(t, err)
	frame := int64(5 + len(in))
	a, e := got.Totals[billing.TotalKey{Tenant: "acme"}], got.Totals[billing.TotalKey{Tenant: "europe"}]
	if a.BytesIn != frame || a.BytesOut != frame+3 || a.Prompt < int64(len(in))/4 || got.Missing+got.Duplicates != 0 {
		t.Errorf("the call left %+v, want %d bytes in; %+v", a, frame, got)
	}
	if want := (billing.Total{Requests: 1, Estimated: 1, BytesIn: 8, BytesOut: 13}); e != want {
		t.Errorf("the WebSocket left %+v, want %+v", e, want)
	}
	if n := readMetric(t, reg, "spillway_regional_usage_bytes_total", "in"); n != float64(frame) && n != 8 {
		t.Errorf("%v bytes are counted", n)
	}
}
