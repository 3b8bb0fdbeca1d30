package regional_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

// startDeadlineWorker starts a worker that resets every call at the deadline that it received, before or after its
// response head.
func startDeadlineWorker(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(t, err)
	s := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		var unit string
		_, _ = fmt.Sscanf(r.Header.Get("Grpc-Timeout"), "%d%s", &n, &unit)
		if strings.HasSuffix(r.URL.Path, "Begun") {
			w.Header().Set("Content-Type", "application/grpc")
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
		}
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); done.Wait() })
	return l.Addr().String()
}

// A worker resets calls at their deadline, before or after the timers of its zone and its gateway. The call ends
// with its deadline, and neither the zone nor the worker counts as failed.
func TestExpiredDeadlineBlamesNoEndpoint(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	a := w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + startDeadlineWorker(t), Weight: 1})
	chat := clientCall{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`}
	testkit.Eventually(t, "the zone serves", func() bool { resp, _ := w.getAnswer(g, chat); return resp.StatusCode == 200 })
	testkit.Eventually(t, "the zone has the spec, which adds paths", func() bool {
		_, body := w.getAnswer(g, clientCall{path: "/custom/run", key: chat.key, body: chat.body})
		return !strings.Contains(body, "no such path")
	})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			method := "/any.Service/" + []string{"Silent", "Begun"}[i%2]
			s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small", "x-spillway-deadline-ms", fmt.Sprint(200+10*i)), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			requireNoError(t, err)
			var out []byte
			if err := s.RecvMsg(&out); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
	all.Wait()
	if n := readMetric(t, reg, "spillway_regional_retries_total", ""); n != 0 {
		t.Errorf("%v calls were tried again", n)
	}
	for _, x := range a.Status().Workers {
		if x.State != "ready" {
			t.Errorf("the worker is %+v", x)
		}
	}
	if resp, body := w.getAnswer(g, chat); resp.StatusCode != 200 {
		t.Errorf("then comes %d %s", resp.StatusCode, body)
	}
}

// The local tier receives the remaining time of a client's deadline, from either header.
func TestDeadlineFromEitherHeaderIsForwarded(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for _, name := range []string{forward.HeaderClientDeadline, forward.HeaderRequestTimeout} {
		resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{name: {"60000"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
		}
		got := (<-l.requests).Header.Get(forward.HeaderDeadlineMS)
		if ms, err := strconv.Atoi(got); err != nil || ms < 1 || ms > 60000 {
			t.Errorf("%s: the local is told %q", name, got)
		}
	}
}

// A request refused for its deadline records no cached prefix, so that it is refused again when it is repeated.
func TestRefusedRequestRecordsNoPrefix(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	a := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	long := `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 6_000) + `"}]}`
	testkit.Eventually(t, "both zones serve", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`})
		return resp.StatusCode == 200 && len(a.requests) > 0 && len(b.requests) > 0
	})
	late := http.Header{"X-Spillway-Deadline-Ms": {"20"}}
	for range 3 {
		if resp, text := w.getAnswer(g, clientCall{key: "key-acme", body: long, header: late}); resp.StatusCode != 504 {
			t.Fatalf("%d %.200s", resp.StatusCode, text)
		}
	}
}
