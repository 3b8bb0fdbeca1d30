package registrar

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/local/discover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNetwork answers for local instances and the engine without a network, so that time can be virtual.
type fakeNetwork struct {
	mu         sync.Mutex
	calls      []string // "PUT host"
	times      map[string][]time.Time
	makeAnswer func(r *http.Request) (int, string)
	notified   []string
}

func (w *fakeNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	call := r.Method + " " + r.URL.Host
	w.calls = append(w.calls, call)
	w.times[call] = append(w.times[call], time.Now())
	status, body := w.makeAnswer(r)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Location": {"http://elsewhere:1/"}}, Request: r}, nil
}

func (w *fakeNetwork) countCalls(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.times[call])
}

func (w *fakeNetwork) runRegistrar(t *testing.T, locals []string, health string, during func()) {
	t.Helper()
	w.times = map[string][]time.Time{}
	c, err := New(Config{
		Locals: locals, Name: "w1", Registration: discover.Registration{URL: "http://10.0.0.7:8000", GPU: "H100"}, Token: "secret-token", Health: health, Transport: w,
		Notify: func(line string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.notified = append(w.notified, line)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	during()
	cancel()
	<-done
	if strings.Contains(strings.Join(w.notified, "\n"), "secret-token") {
		t.Error("the token is said aloud")
	}
}

func grantLease(*http.Request) (int, string) {
	b, _ := json.Marshal(discover.RegistrationReply{Name: "w1", URL: "http://10.0.0.7:8000", LeaseSeconds: 30, RenewSeconds: 10})
	return http.StatusOK, string(b)
}

func TestRenewsAtAThirdOfLeaseAndUnregisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNetwork{}
		w.makeAnswer = func(r *http.Request) (int, string) {
			if r.Header.Get("Authorization") != "Bearer secret-token" || r.URL.Path != "/v1/workers/w1" {
				t.Errorf("called %s with %v", r.URL, r.Header)
			}
			return grantLease(r)
		}
		w.runRegistrar(t, []string{"http://a:1", "http://b:1/"}, "", func() { time.Sleep(10 * time.Minute) })
		for _, host := range []string{"a:1", "b:1"} {
			if n := w.countCalls("PUT " + host); n < 55 || n > 67 {
				t.Errorf("%s: %d renewals in 10 minutes, want about 60", host, n)
			}
			if w.countCalls("DELETE "+host) != 1 {
				t.Errorf("%s: not unregistered", host)
			}
			at := w.times["PUT "+host]
			for i := 1; i < len(at); i++ {
				if d := at[i].Sub(at[i-1]); d < 9*time.Second || d > 11*time.Second {
					t.Errorf("%s: renewed after %s", host, d)
				}
			}
		}
		if len(w.notified) != 4 {
			t.Errorf("said %q", w.notified)
		}
	})
}

func TestWaitsForTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, start := &fakeNetwork{}, time.Now()
		w.makeAnswer = func(r *http.Request) (int, string) {
			if r.URL.Host == "engine:1" {
				return map[bool]int{true: 503, false: 200}[time.Since(start) < time.Minute], ""
			}
			return grantLease(r)
		}
		w.runRegistrar(t, []string{"http://a:1"}, "http://engine:1/health", func() {
			time.Sleep(50 * time.Second)
			if w.countCalls("PUT a:1") != 0 {
				t.Error("registered before the engine was up")
			}
			time.Sleep(20 * time.Second)
		})
		if w.countCalls("PUT a:1") == 0 || w.countCalls("DELETE a:1") != 1 {
			t.Errorf("calls are %v", w.calls)
		}
		if !slices.Contains(w.notified, "the engine is up") || len(w.notified) != 4 {
			t.Errorf("said %q", w.notified)
		}
	})
}

// TestUnreachableLocalDoesNotDelayOthers also checks that a refusal is reported once and that failures are spaced
// out.
func TestUnreachableLocalDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, start := &fakeNetwork{}, time.Now()
		w.makeAnswer = func(r *http.Request) (int, string) {
			switch {
			case r.URL.Host == "down:1" && time.Since(start) < 24*time.Hour:
				return 0, ""
			case r.URL.Host == "no:1":
				return 403, `{"error":{"code":"not_allowed","message":"no worker may register at 10.0.0.7"}}`
			case r.URL.Host == "moved:1":
				return 307, ""
			}
			return grantLease(r)
		}
		w.runRegistrar(t, []string{"http://a:1", "http://down:1", "http://no:1", "http://moved:1"}, "", func() {
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if n := w.countCalls("PUT down:1"); n < 5000 || n > 7000 {
				t.Errorf("%d attempts at a local that is down for a day, want one each 15 s", n)
			}
			time.Sleep(time.Minute)
		})
		if w.countCalls("DELETE a:1") != 1 || w.countCalls("DELETE down:1") != 1 || w.countCalls("DELETE no:1") != 0 || w.countCalls("PUT elsewhere:1") != 0 {
			t.Errorf("farewells: %d %d %d, and %d followed", w.countCalls("DELETE a:1"), w.countCalls("DELETE down:1"), w.countCalls("DELETE no:1"), w.countCalls("PUT elsewhere:1"))
		}
		all := strings.Join(w.notified, "\n")
		if strings.Count(all, "no worker may register at 10.0.0.7 (not_allowed)") != 1 || strings.Count(all, "connection refused") != 1 || strings.Count(all, "down:1: registered") != 1 {
			t.Errorf("said\n%s", all)
		}
	})
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	good := func() Config {
		return Config{Locals: []string{"http://a:1"}, Name: "w1", Token: "x", Registration: discover.Registration{URL: "http://10.0.0.7:8000"}}
	}
	for want, change := range map[string]func(*Config){
		"no local instance":   func(c *Config) { c.Locals = nil },
		"registration.listen": func(c *Config) { c.Locals = []string{"a:1"} },
		"no name":             func(c *Config) { c.Name = "" },
		"not a worker's URL":  func(c *Config) { c.Registration.URL = "10.0.0.7" },
		"no token":            func(c *Config) { c.Token = "" },
	} {
		c := good()
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := New(good()); err != nil {
		t.Error(err)
	}
}
