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
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// count is how many lines contain all of the parts.
func (l *logged) count(parts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			n++
		}
	}
	return n
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// TestAWorkerThatIsNotReadySaysWhy: for each cause the status, its JSON, explain and one WARN name it.
func TestAWorkerThatIsNotReadySaysWhy(t *testing.T) {
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
		"refused":       {"http://" + closedPort(t), "", "GET /v1/models: connection refused"},
		"no host":       {"http://no-such-host..invalid:8000", "", "GET /v1/models: no such host no-such-host..invalid"},
		"https to http": {strings.Replace(plain(200, `{"data":[{"id":"m"}]}`), "http:", "https:", 1), "", "GET /v1/models: TLS handshake failed (the worker does not use TLS: write http:// in url)"},
		"http to https": {strings.Replace(secure.URL, "https:", "http:", 1), "", "GET /v1/models: status 400 Bad Request (the worker uses TLS: write https:// in url)"},
		"authority":     {secure.URL, "", "GET /v1/models: the worker's certificate is signed by an unknown authority (set tls.ca)"},
		"hangs up":      {"http://" + hangUp.Addr().String(), "", "GET /v1/models: connection closed before an answer (if the worker uses TLS, write https:// in url)"},
		"key":           {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"key of vLLM":   {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "vllm", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"loading":       {plain(http.StatusServiceUnavailable, `Loading model`), "", "GET /v1/models: status 503 Service Unavailable"},
		"no model":      {plain(http.StatusOK, `{"object":"list","data":[]}`), "openai", "GET /v1/models: no model listed"},
		"no dialect":    {plain(http.StatusNotFound, ``), "", "the worker speaks no known dialect"},
		"not JSON":      {plain(http.StatusOK, `<html>`), "openai", "GET /v1/models: the answer is not JSON of the expected form"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var log logged
			a := start(t, func(cfg *local.Config) {
				cfg.Workers = []discover.Worker{{Name: "w1", URL: c.url, Engine: c.engine}}
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			var s admin.WorkerStatus
			eventually(t, "three attempts have failed", func() bool { s = status(a, "w1"); return s.Attempts >= 3 })
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
			if err != nil || len(recs) != 1 || len(recs[0].Candidates) != 1 || !strings.Contains(recs[0].Candidates[0].Dropped, c.cause) {
				t.Errorf("explain: %+v, %v", recs, err)
			}
			eventually(t, "twenty attempts have failed", func() bool { return status(a, "w1").Attempts >= 20 })
			full := c.cause
			if rest, ok := strings.CutPrefix(c.cause, "GET "); ok {
				full = "GET " + c.url + rest
			}
			if n := log.count("level=WARN", "worker is not ready", full, "worker=w1"); n != 1 {
				t.Errorf("%d lines name the cause:\n%s", n, log.String())
			}
		})
	}
}

// TestAWorkerThatIsLostSaysWhy: what is ejected has the cause of its probes, in status and in the line of the change.
func TestAWorkerThatIsLostSaysWhy(t *testing.T) {
	w := newVLLM(t, "w1")
	var log logged
	a := start(t, func(cfg *local.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }, w)
	w.CloseClientConnections()
	w.Close()
	const cause = "ejected: probe: GET /"
	eventually(t, "the worker is out", func() bool {
		s := status(a, "w1")
		return s.State == admin.StateSick && strings.HasPrefix(s.Reason, cause) && strings.Contains(s.Reason, "connection refused (")
	})
	eventually(t, "the change is logged with its cause", func() bool {
		return log.count("worker changed state", "from=ready", "to=sick", cause, "connection refused") == 1
	})
}

// TestAWorkerThatRecoversHasNoError: what was recorded ends with the first success.
func TestAWorkerThatRecoversHasNoError(t *testing.T) {
	addr := closedPort(t)
	a := start(t, func(cfg *local.Config) {
		cfg.Workers = []discover.Worker{{Name: "w1", URL: "http://" + addr}}
	})
	eventually(t, "it fails", func() bool { return status(a, "w1").Attempts > 2 })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("the port is taken meanwhile")
	}
	s := &http.Server{Handler: newVLLM(t, "w").Config.Handler}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	eventually(t, "it is ready and has no error", func() bool {
		s := status(a, "w1")
		return s.State == admin.StateReady && s.LastError == "" && s.Attempts == 0 && s.Since.IsZero() && s.Reason == ""
	})
}
