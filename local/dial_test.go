package local

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/local/discover"
)

// TestHTTPSWorkerIsDialledByAddressWithItsServerName uses a server whose certificate is for example.com.
func TestHTTPSWorkerIsDialledByAddressWithItsServerName(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.TLS.ServerName+" "+r.Host) }))
	defer s.Close()
	names := &serverNames{rootCAs: x509.NewCertPool()}
	names.rootCAs.AddCert(s.Certificate())
	transport := newWorkerTransport(names, nil, false)
	defer transport.(*namedTransport).CloseIdleConnections()
	_, port, _ := splitURL(s.URL)
	for name, want := range map[string]string{"example.com": "example.com example.com:" + port, "other.test": "", "": " 127.0.0.1:" + port} {
		names.setWorkers([]discover.Worker{{Name: "w", URL: s.URL, ServerName: name}})
		transport.(*namedTransport).CloseIdleConnections()
		req, err := http.NewRequest(http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if want == "" {
			if err == nil {
				t.Errorf("a certificate for another name than %q was taken", name)
				_ = resp.Body.Close()
			}
			continue
		}
		if err != nil {
			t.Errorf("name %q: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(text) != want || req.Host != "127.0.0.1:"+port {
			t.Errorf("name %q: the worker saw %q, want %q; the caller's request has %q", name, text, want, req.Host)
		}
	}
	names.setWorkers([]discover.Worker{{Name: "w", URL: s.URL, ServerName: "example.com"}})
	if !names.setWorkers(nil) || names.setWorkers(nil) {
		t.Error("a change of names is not told once")
	}
}

func splitURL(s string) (host, port string, ok bool) {
	req, err := http.NewRequest(http.MethodGet, s, nil)
	if err != nil {
		return "", "", false
	}
	return req.URL.Hostname(), req.URL.Port(), true
}

func TestChangedLabelReplacesWorker(t *testing.T) {
	a := discover.Worker{Name: "w", URL: "http://10.0.0.1:1", Labels: map[string]string{"rack": "r7"}}
	b := a
	if !isSameWorker(a, b) {
		t.Error("a worker differs from itself")
	}
	b.Labels = map[string]string{"rack": "r8"}
	if isSameWorker(a, b) {
		t.Error("a label's change is not seen")
	}
	b = a
	b.ServerName = "w.test"
	if isSameWorker(a, b) {
		t.Error("a name's change is not seen")
	}
}

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

// TestRetiredConnectionIsNotUsedAgain: a connection that is in use when the credentials change serves no later call.
func TestRetiredConnectionIsNotUsedAgain(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			close(begun)
			<-release
		}
		_, _ = io.WriteString(w, r.RemoteAddr)
	}))
	defer s.Close()
	for name, off := range map[string]bool{"fast": false, "net/http": true} {
		begun, release = make(chan struct{}), make(chan struct{})
		transport := newWorkerTransport(&serverNames{}, nil, off).(*namedTransport)
		call := func(path string) string {
			req, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
			if err != nil {
				t.Error(err)
				return ""
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return ""
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			return string(text)
		}
		held := make(chan string)
		go func() { held <- call("/held") }()
		<-begun
		transport.RetireConnections()
		close(release)
		old := <-held
		next := call("/")
		if next == old {
			t.Errorf("%s: the call after the change used the connection from before it", name)
		}
		if again := call("/"); again != next {
			t.Errorf("%s: the new connection is not kept", name)
		}
		transport.CloseIdleConnections()
	}
}
