package admin_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestLinearizableParameter makes both kinds of reads, and one with an invalid parameter.
func TestLinearizableParameter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Spec:    func(context.Context) (*admin.SpecAnswer, error) { return &admin.SpecAnswer{Version: 1}, nil },
		SpecNow: func(context.Context) (*admin.SpecAnswer, error) { return &admin.SpecAnswer{Version: 2}, nil },
		Drains:  func(context.Context) (*admin.DrainAnswer, error) { return &admin.DrainAnswer{}, nil },
	}})
	hc := rawClient(t, path)
	for query, want := range map[string]string{
		"spec": `"version": 1`, "spec?linearizable=0": `"version": 1`, "spec?linearizable=1": `"version": 2`, "spec?linearizable=true": `"version": 2`,
		"spec?linearizable=yes": "write 1, or omit it", "drains?linearizable=1": "this node's tier does not support this command", "drains": `"drains"`,
	} {
		resp, err := hc.Get("http://node/v1/" + query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s gets %s (%v), want %s", query, body, err, want)
		}
	}
}
