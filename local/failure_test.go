package local_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// refusingAddress returns an address that refuses connections.
func refusingAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// TestNotReadyWorkerShowsCause: for each cause the status, its JSON, explain and one WARN line contain it.
func TestNotReadyWorkerShowsCause(t *testing.T) {
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		t.Cleanup(s.Close)
		return s
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				return
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	plain := func(status int, body string) string {
		s := quiet(httptest.NewUnstartedServer(answer(status, body)))
		s.Start()
		return s.URL
	}
	secure := quiet(httptest.NewUnstartedServer(answer(http.StatusOK, `{"data":[{"id":"m"}]}`)))
	secure.StartTLS()
	hangUp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangUp.Close() })
	go func() {
		for {
			c, err := hangUp.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	cases := map[string]struct{ url, engine, cause string }{
		"refused":       {"http://" + refusingAddress(t), "", "GET /v1/models: connection refused"},
		"no host":       {"http://no-such-host..invalid:8000", "", "GET /v1/models: no such host no-such-host..invalid"},
		"https to http": {strings.Replace(plain(200, `{"data":[{"id":"m"}]}`), "http:", "https:", 1), "", "GET /v1/models: TLS handshake failed (the worker does not use TLS: write http:// in url)"},
		"http to https": {strings.Replace(secure.URL, "https:", "http:", 1), "", "GET /v1/models: status 400 Bad Request (the worker uses TLS: write https:// in url)"},
		"authority":     {secure.URL, "", "GET /v1/models: the worker's certificate is signed by an unknown authority (set tls.ca)"},
		"hangs up":      {"http://" + hangUp.Addr().String(), "", "GET /v1/models: connection closed before an answer (if the worker uses TLS, write https:// in url)"},
		"key":           {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"key of vLLM":   {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "vllm", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"loading":       {plain(http.StatusServiceUnavailable, `Loading model`), "", "GET /v1/models: status 503 Service Unavailable"},
		"no model":      {plain(http.StatusOK, `{"object":"list","data":[]}`), "openai", "GET /v1/models: no model listed"},
		"no dialect":    {plain(http.StatusNotFound, ``), "", "unknown engine: the worker serves neither /v1/models nor /v2"},
		"not JSON":      {plain(http.StatusOK, `<html>`), "openai", "GET /v1/models: the answer is not JSON of the expected form"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var log testkit.LogBuffer
			a := startAgent(t, func(cfg *local.Config) {
				cfg.Workers = []discover.Worker{{Name: "w1", URL: c.url, Engine: c.engine}}
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			var s admin.WorkerStatus
			testkit.Eventually(t, "three attempts have failed", func() bool { s = workerStatus(a, "w1"); return s.Attempts >= 3 })
			if s.State != admin.StateStarting || !strings.HasPrefix(s.Reason, "not ready: "+c.cause) || !strings.HasSuffix(s.Reason, " attempts)") {
				t.Errorf("status: %s, %q", s.State, s.Reason)
			}
			text, err := json.Marshal(&s)
			var back struct {
				LastError string    `json:"last_error"`
				Attempts  int       `json:"attempts"`
				Since     time.Time `json:"since"`
			}
			if err != nil || json.Unmarshal(text, &back) != nil || !strings.HasPrefix(back.LastError, c.cause) || back.Attempts < 3 || time.Since(back.Since) > time.Minute {
				t.Errorf("JSON: %s, %v", text, err)
			}
			recs, err := a.Explain(admin.ExplainQuery{Model: "m"})
			if err != nil || len(recs) != 1 || len(recs[0].Candidates) != 1 || !strings.Contains(recs[0].Candidates[0].IneligibleReason, c.cause) {
				t.Errorf("explain: %+v, %v", recs, err)
			}
			testkit.Eventually(t, "twenty attempts have failed", func() bool { return workerStatus(a, "w1").Attempts >= 20 })
			full := strings.Replace(c.cause, " /", " "+c.url+"/", 1)
			if n := len(log.Lines("level=WARN", "worker is not ready", full, "worker=w1")); n != 1 {
				t.Errorf("%d lines name the cause:\n%s", n, log.String())
			}
		})
	}
}

// TestEjectedWorkerShowsCause: an ejected worker shows the cause of its failed probes, in status and in the log line.
func TestEjectedWorkerShowsCause(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	var log testkit.LogBuffer
	a := startAgent(t, func(cfg *local.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }, w)
	w.CloseClientConnections()
	w.Close()
	const cause = "ejected: probe: GET /"
	testkit.Eventually(t, "the worker is out", func() bool {
		s := workerStatus(a, "w1")
		return s.State == admin.StateUnhealthy && strings.HasPrefix(s.Reason, cause) && strings.Contains(s.Reason, "connection refused (")
	})
	testkit.Eventually(t, "the change is logged with its cause", func() bool {
		return len(log.Lines("worker changed state", "from=ready", "to=sick", cause, "connection refused")) == 1
	})
}

// TestRecoveredWorkerShowsNoError: the recorded failures end with the first success.
func TestRecoveredWorkerShowsNoError(t *testing.T) {
	addr := refusingAddress(t)
	a := startAgent(t, func(cfg *local.Config) {
		cfg.Workers = []discover.Worker{{Name: "w1", URL: "http://" + addr}}
	})
	testkit.Eventually(t, "it fails", func() bool { return workerStatus(a, "w1").Attempts > 2 })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("the port is taken meanwhile")
	}
	s := &http.Server{Handler: newFakeVLLM(t, "w").Config.Handler}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	testkit.Eventually(t, "it is ready and has no error", func() bool {
		s := workerStatus(a, "w1")
		return s.State == admin.StateReady && s.LastError == "" && s.Attempts == 0 && s.Since.IsZero() && s.Reason == ""
	})
}
