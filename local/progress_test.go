package local_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/relay"
)

// TestZoneReportsTheQueue: the gateway learns that a request waits and that it has left the queue for a worker. A request that
// goes to a worker at once costs no interim answer, and a client of a plain zone gets none.
func TestZoneReportsTheQueue(t *testing.T) {
	p := newPlanet(t)
	w := newVLLM(t, "w1")
	w.kv = 4
	a := start(t, p.join, w)
	w.set("hold")
	body := `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	var mu sync.Mutex
	reports := map[string][]string{}
	seen := func(id string) []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(reports[id]) }
	var all sync.WaitGroup
	send := func(id string) {
		all.Go(func() {
			tr := relay.NewTransport(p.gateway.Client(relay.ALPN, nil))
			defer tr.CloseIdleConnections()
			ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
				Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
					mu.Lock()
					defer mu.Unlock()
					if status != http.StatusProcessing {
						t.Errorf("interim status %d", status)
					}
					reports[id] = append(reports[id], h.Get(relay.HeaderProgress))
					return nil
				},
			})
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
			(&relay.Hop{RequestID: id, Tenant: "acme", RetriesLeft: 1}).Set(req.Header)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK || resp.Header.Get(relay.HeaderProgress) != "" {
				t.Errorf("%s was answered %d %v", id, resp.StatusCode, resp.Header)
			}
		})
	}
	send("first")
	eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	send("second")
	eventually(t, "the second is reported as queued", func() bool { return slices.Equal(seen("second"), []string{relay.ProgressQueued}) })
	w.release <- struct{}{}
	eventually(t, "the second is reported as started", func() bool {
		return slices.Equal(seen("second"), []string{relay.ProgressQueued, relay.ProgressStarted})
	})
	w.release <- struct{}{}
	all.Wait()
	if got := seen("first"); len(got) != 0 {
		t.Errorf("of the request that did not wait the zone reported %v", got)
	}
}
