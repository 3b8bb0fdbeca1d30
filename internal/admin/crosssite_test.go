package admin_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestCrossSiteRequestsAreRefused: changes that a browser sends for a page of another site are refused, and bodies that such a
// page can send without a CORS preflight. Requests of programs are accepted.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	var drains atomic.Int64
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Drain: func(context.Context, admin.DrainRequest, string) (*admin.DrainAnswer, error) {
			drains.Add(1)
			return &admin.DrainAnswer{Drains: []admin.Drain{}}, nil
		},
		Undrain: func(context.Context, string, string, string) (*admin.DrainAnswer, error) {
			drains.Add(1)
			return &admin.DrainAnswer{Drains: []admin.Drain{}}, nil
		},
	}})
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	for name, c := range map[string]struct {
		method string
		header map[string]string
		want   int
	}{
		"form of another site":      {"POST", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403},
		"JSON of another site":      {"POST", map[string]string{"Origin": "https://evil.example", "Content-Type": "application/json"}, 403},
		"fetch of another site":     {"POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"}, 403},
		"removal by another site":   {"DELETE", map[string]string{"Origin": "https://evil.example"}, 403},
		"opaque origin":             {"POST", map[string]string{"Origin": "null", "Content-Type": "application/json"}, 403},
		"no Content-Type":           {"POST", nil, 415},
		"text":                      {"POST", map[string]string{"Content-Type": "text/plain"}, 415},
		"a form":                    {"POST", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		"JSON among others":         {"POST", map[string]string{"Content-Type": "text/plain; application/json"}, 415},
		"a program":                 {"POST", map[string]string{"Content-Type": "application/json"}, 200},
		"a program with a charset":  {"POST", map[string]string{"Content-Type": "Application/JSON; charset=utf-8"}, 200},
		"a page of the same origin": {"POST", map[string]string{"Origin": "http://node", "Content-Type": "application/json"}, 200},
		"a program that removes":    {"DELETE", nil, 200},
	} {
		before := drains.Load()
		req, err := http.NewRequest(c.method, "http://node/v1/drains?path=eu", strings.NewReader(`{"path":"eu"}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Error *admin.Error }
		err = json.NewDecoder(resp.Body).Decode(&out)
		resp.Body.Close()
		if resp.StatusCode != c.want || err != nil || (c.want != 200) != (out.Error != nil) {
			t.Errorf("%s: %d %+v %v, want %d", name, resp.StatusCode, out.Error, err, c.want)
		}
		if done := drains.Load() - before; (done == 1) != (c.want == 200) {
			t.Errorf("%s: %d drains", name, done)
		}
	}
}
