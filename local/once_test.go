package local

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRequestIsSentOnceWhenWorkerEndsWithIt, whichever transport carries it, and however many connections are kept.
func TestRequestIsSentOnceWhenWorkerEndsWithIt(t *testing.T) {
	for name, transport := range map[string]http.RoundTripper{
		"worker":           newWorkerTransport(&serverNames{}, nil, false),
		"worker, not fast": newWorkerTransport(&serverNames{}, nil, true),
		"stream":           newStreamTransport(&serverNames{}, nil),
	} {
		for _, upgrade := range []bool{false, true} {
			const kept = 4
			var ended atomic.Int64
			var first sync.WaitGroup
			first.Add(kept)
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					ended.Add(1)
					panic(http.ErrAbortHandler)
				}
				first.Done()
				first.Wait()
			}))
			get := func(path string) error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
				if err != nil {
					return err
				}
				if upgrade && path == "/end" {
					req.Header.Set("Connection", "Upgrade")
					req.Header.Set("Upgrade", "websocket")
				}
				resp, err := transport.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				return err
			}
			var group sync.WaitGroup
			for range kept {
				group.Go(func() {
					if err := get("/"); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if err := get("/end"); err == nil || ended.Load() != 1 {
				t.Errorf("%s, upgrade %v: %v after the worker got the request %d times", name, upgrade, err, ended.Load())
			}
			transport.(*namedTransport).CloseIdleConnections()
			s.Close()
		}
	}
}
