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
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/usage"
)

// Calls and WebSockets leave one record each, with the bytes that passed; those that no worker took leave none.
func TestUsageOfWhatPassesIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.UsageDir, c.Registry = dir, reg })
	callee := newCallee(t)
	url, _ := echoer(t, standIn(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, GRPC: "http://" + callee.addr, Weight: 1})
	chat := call{key: "key-acme", body: ask}
	eventually(t, "the zone serves", func() bool { resp, _ := w.ask(g, chat); return resp.StatusCode == 200 })
	conn := w.dial(g, insecure.NewCredentials())
	in, out := infer("small"), []byte(nil)
	must(t, conn.Invoke(asking(t.Context()), inferMethod, &in, &out))
	if err := conn.Invoke(asking(t.Context()), inferMethod, &[]byte{0x12, 1, 'x'}, &out); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	resp, c, r := upgrade(t, g, "/v1/realtime?model=small", "key-europe")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.StatusCode)
	}
	says(t, r, "hello")
	_, _ = io.WriteString(c, "one\n")
	says(t, r, "re:one")
	_, _ = io.WriteString(c, "bye\n")
	_, _ = io.ReadAll(r)
	if resp, _, _ := upgrade(t, g, "/v1/realtime?model=small&deny=1", "key-europe"); resp.StatusCode != http.StatusTeapot {
		t.Error(resp.StatusCode)
	}
	must(t, conn.Close())
	must(t, g.Stop(soon(t)))
	got, err := usage.Read([]string{dir}, []string{"tenant"})
	must(t, err)
	frame := int64(5 + len(in))
	a, e := got.Totals[usage.Key{Tenant: "acme"}], got.Totals[usage.Key{Tenant: "europe"}]
	if a.BytesIn != frame || a.BytesOut != frame+3 || a.Prompt < int64(len(in))/4 || got.Missing+got.Twice != 0 {
		t.Errorf("the call left %+v, want %d bytes in; %+v", a, frame, got)
	}
	if want := (usage.Total{Requests: 1, Estimated: 1, BytesIn: 8, BytesOut: 13}); e != want {
		t.Errorf("the WebSocket left %+v, want %+v", e, want)
	}
	if n := figure(t, reg, "spillway_regional_usage_bytes_total", "in"); n != float64(frame) && n != 8 {
		t.Errorf("%v bytes are counted", n)
	}
}
