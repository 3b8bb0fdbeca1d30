package discover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

const tokenA, tokenB = "token-a-0123456789abcdef", "token-b-0123456789abcdef"

// newTestSources returns the sources of an instance that accepts two tokens.
func newTestSources(t *testing.T, change func(*Config)) *Sources {
	t.Helper()
	cfg := Config{
		Static:   []Worker{workerNamed("static", "http://10.0.0.250:8000")},
		OnChange: func([]Worker) {},
		Registration: config.Registration{
			Listen: "unused", Tokens: []string{spec.HashKey(tokenA), spec.HashKey(tokenB)}, Allow: []string{"10.0.0.0/16", "0.0.0.0/0", "::/0"},
			Lease: 30 * time.Second, MaxWorkers: 4,
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.registrationServer.allow.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "w.test":
			return []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.8")}, nil
		case "half.test":
			return []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("169.254.169.254")}, nil
		case "local.test":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return nil, errors.New("no such host")
	}
	return s
}

func callRegistration(s *Sources, method, path, token, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.RegistrationServer().ServeHTTP(w, r)
	var e struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(w.Body.Bytes(), &e)
	if w.Code != http.StatusOK {
		return w.Code, e.Error.Code
	}
	return w.Code, w.Body.String()
}

// TestRegistrationPreventsRequestForgery registers workers at addresses that must not be reached through Spillway.
func TestRegistrationPreventsRequestForgery(t *testing.T) {
	narrow := func(c *Config) { c.Registration.Allow = []string{"10.0.0.0/16"} }
	for _, c := range []struct {
		url, reason string
		change      func(*Config)
	}{
		{"http://169.254.169.254:80", "bad_url", nil},
		{"http://[fe80::1]:80", "bad_url", nil},
		{"http://[fe80::1%25eth0]:80", "bad_url", nil},
		{"http://[::ffff:169.254.169.254]:80", "bad_url", nil},
		{"http://[64:ff9b::a9fe:a9fe]:80", "bad_url", nil},
		{"http://[fd00:ec2::254]:80", "bad_url", nil},
		{"http://100.100.100.200:80", "bad_url", nil},
		{"http://0.0.0.0:80", "bad_url", nil},
		{"http://[::]:80", "bad_url", nil},
		{"http://224.0.0.1:80", "bad_url", nil},
		{"http://127.0.0.1:8000", "not_allowed", nil}, // 0.0.0.0/0 does not include loopback
		{"http://[::1]:8000", "not_allowed", nil},
		{"http://[::ffff:127.0.0.1]:8000", "not_allowed", nil},
		{"http://192.168.0.1:8000", "not_allowed", narrow},
		{"http://[fd00::1]:8000", "not_allowed", narrow},
		{"http://local.test:8000", "not_allowed", nil},
		{"http://half.test:8000", "not_allowed", nil}, // one forbidden address makes the name invalid
		{"http://2130706433:8000", "unresolved", nil},
		{"http://0x7f.1:8000", "unresolved", nil},
		{"http://unknown.test:8000", "unresolved", nil},
		{"http://user:pw@10.0.0.1:8000", "bad_url", nil},
		{"http://10.0.0.1:8000/v1", "bad_url", nil},
		{"http://10.0.0.1:8000/?x=1", "bad_url", nil},
		{"http://10.0.0.1:8000#x", "bad_url", nil},
		{"http://10.0.0.1:0", "bad_url", nil},
		{"http://10.0.0.1:99999", "bad_url", nil},
		{"file:///etc/passwd", "bad_url", nil},
		{"gopher://10.0.0.1:70", "bad_url", nil},
		{"unix:///run/x.sock", "bad_url", nil},
		{"10.0.0.1:8000", "bad_url", nil},
		{"", "bad_url", nil},
	} {
		s := newTestSources(t, c.change)
		status, reason := callRegistration(s, "PUT", "/v1/workers/w1", tokenA, fmt.Sprintf(`{"url":%q}`, c.url))
		if status < 400 || reason != c.reason {
			t.Errorf("%s: %d %s, want %s", c.url, status, reason, c.reason)
		}
		if s.Stats().Rejections[c.reason] != 1 || s.Stats().Registrations != 0 {
			t.Errorf("%s: counted %+v", c.url, s.Stats())
		}
	}
	for _, page := range []string{"http://10.0.0.2:9400/metrics", "https://10.0.0.1:9400/metrics", "http://169.254.169.254/latest", "http://u@10.0.0.1/metrics", "ftp://10.0.0.1/", "x"} {
		for _, key := range []string{"metrics", "gpu_metrics"} {
			if status, reason := callRegistration(newTestSources(t, nil), "PUT", "/v1/workers/w1", tokenA, fmt.Sprintf(`{"url":"http://10.0.0.1:8000",%q:%q}`, key, page)); reason != "bad_url" {
				t.Errorf("%s %s: %d %s", key, page, status, reason)
			}
		}
	}
}

// TestCacheEventsComeFromTheWorkersOwnHost: a stream at another host is refused, one at the worker's own is pinned.
func TestCacheEventsComeFromTheWorkersOwnHost(t *testing.T) {
	for _, stream := range []string{"tcp://10.0.0.2:5557", "tcp://169.254.169.254:80", "http://10.0.0.1:5557", "tcp://10.0.0.1", "tcp://10.0.0.1:0", "tcp://u@10.0.0.1:5557", "tcp://10.0.0.1:5557/x", "tcp://*:5557", "ipc:///tmp/x", ""} {
		for _, key := range []string{"kv_events", "kv_replay"} {
			if status, reason := callRegistration(newTestSources(t, nil), "PUT", "/v1/workers/w1", tokenA, fmt.Sprintf(`{"url":"http://10.0.0.1:8000",%q:[%q]}`, key, stream)); reason != "bad_url" {
				t.Errorf("%s %s: %d %s", key, stream, status, reason)
			}
		}
	}
	s := newTestSources(t, nil)
	if status, body := callRegistration(s, "PUT", "/v1/workers/w1", tokenA, `{"url":"http://w.test:8000","kv_events":["tcp://w.test:5557"],"kv_replay":["tcp://w.test:5558"]}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if w := s.registrationServer.leases.leasedWorkers()[0]; w.KVEvents[0] != "tcp://10.0.0.8:5557" || w.KVReplay[0] != "tcp://10.0.0.8:5558" {
		t.Fatalf("the worker is %+v", w)
	}
}

func TestCheckedAddressIsTheOneInUse(t *testing.T) {
	s := newTestSources(t, nil)
	if status, body := callRegistration(s, "PUT", "/v1/workers/w1", tokenA, `{"url":"https://w.test:8443/","gpu":"H100","labels":{"rack":"r7"},"metrics":"http://w.test:9090/metrics"}`); status != 200 || !strings.Contains(body, `"url":"https://10.0.0.8:8443"`) {
		t.Fatalf("%d %s", status, body)
	}
	w := s.registrationServer.leases.leasedWorkers()[0]
	if w.URL != "https://10.0.0.8:8443" || w.ServerName != "w.test" || w.Metrics != "http://10.0.0.8:9090/metrics" || w.Labels["rack"] != "r7" || w.Weight != 1 {
		t.Errorf("the worker is %+v", w)
	}
	// A name that also resolves to the address in use does not move the worker.
	s.registrationServer.allow.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.8")}, nil
	}
	callRegistration(s, "PUT", "/v1/workers/w1", tokenA, `{"url":"https://w.test:8443"}`)
	if w := s.registrationServer.leases.leasedWorkers()[0]; w.URL != "https://10.0.0.8:8443" {
		t.Errorf("the worker moved to %s", w.URL)
	}
	loop := newTestSources(t, func(c *Config) { c.Registration.Allow = []string{"127.0.0.0/8"} })
	if status, body := callRegistration(loop, "PUT", "/v1/workers/w1", tokenA, `{"url":"http://127.0.0.1:8000"}`); status != 200 {
		t.Errorf("loopback that is named: %d %s", status, body)
	}
}

func TestInvalidRegistrationsAreRefused(t *testing.T) {
	good := `{"url":"http://10.0.0.1:8000"}`
	for name, c := range map[string]struct {
		method, path, token, body string
		status                    int
		reason                    string
	}{
		"no token":            {"PUT", "/v1/workers/w1", "", good, 401, "unauthorized"},
		"wrong token":         {"PUT", "/v1/workers/w1", tokenA + "x", good, 401, "unauthorized"},
		"short token":         {"PUT", "/v1/workers/w1", "abc", good, 401, "unauthorized"},
		"other method":        {"POST", "/v1/workers/w1", tokenA, good, 404, "not_found"},
		"other path":          {"PUT", "/v1/worker/w1", tokenA, good, 404, "not_found"},
		"name with a slash":   {"PUT", "/v1/workers/a/b", tokenA, good, 400, "bad_name"},
		"no name":             {"PUT", "/v1/workers/", tokenA, good, 400, "bad_name"},
		"no JSON":             {"PUT", "/v1/workers/w1", tokenA, "url: x", 400, "bad_body"},
		"two objects":         {"PUT", "/v1/workers/w1", tokenA, good + good, 400, "bad_body"},
		"unknown key":         {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","uri":1}`, 400, "bad_body"},
		"key in capitals":     {"PUT", "/v1/workers/w1", tokenA, `{"URL":"http://10.0.0.1:8000"}`, 400, "bad_body"},
		"key twice":           {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","url":"http://10.0.0.2:8000"}`, 400, "bad_body"},
		"label twice":         {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","labels":{"a":"1","a":"2"}}`, 400, "bad_body"},
		"wrong kind":          {"PUT", "/v1/workers/w1", tokenA, `{"url":7}`, 400, "bad_body"},
		"control characters":  {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","gpu":"a\nb"}`, 400, "bad_body"},
		"too large":           {"PUT", "/v1/workers/w1", tokenA, `{"url":"` + strings.Repeat("x", maxBodyBytes) + `"}`, 413, "bad_body"},
		"unknown engine":      {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","engine":"vlm"}`, 400, "bad_worker"},
		"negative weight":     {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","weight":-1}`, 400, "bad_worker"},
		"a static one's name": {"PUT", "/v1/workers/static", tokenA, good, 409, "held"},
		"a static one's URL":  {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.250:8000"}`, 409, "held"},
		"another's name":      {"PUT", "/v1/workers/b", tokenA, good, 409, "taken"},
		"another's URL":       {"PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.200:8000/"}`, 409, "taken"},
		"leaving, another's":  {"DELETE", "/v1/workers/b", tokenA, "", 404, "unknown"},
		"leaving, unknown":    {"DELETE", "/v1/workers/c", tokenA, "", 404, "unknown"},
	} {
		s := newTestSources(t, nil)
		if status, body := callRegistration(s, "PUT", "/v1/workers/b", tokenB, `{"url":"http://10.0.0.200:8000"}`); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		if status, reason := callRegistration(s, c.method, c.path, c.token, c.body); status != c.status || reason != c.reason {
			t.Errorf("%s: %d %s, want %d %s", name, status, reason, c.status, c.reason)
		}
		if !slices.Contains(rejectionReasons(), c.reason) || s.Stats().Rejections[c.reason] != 1 || len(s.Stats().Rejections) != len(rejectionReasons()) {
			t.Errorf("%s: counted %v", name, s.Stats().Rejections)
		}
	}
}

func TestRegisteredWorkersAreBounded(t *testing.T) {
	s := newTestSources(t, nil)
	for i := range 5 {
		status, reason := callRegistration(s, "PUT", fmt.Sprintf("/v1/workers/w%d", i), tokenA, fmt.Sprintf(`{"url":"http://10.0.0.%d:8000"}`, i+1))
		if want := map[bool]int{true: 200, false: 503}[i < 4]; status != want {
			t.Errorf("worker %d: %d %s, want %d", i, status, reason, want)
		}
	}
	if status, _ := callRegistration(s, "PUT", "/v1/workers/w0", tokenA, `{"url":"http://10.0.0.1:8000"}`); status != 200 {
		t.Errorf("a renewal in a full table: %d", status)
	}
}

func TestWrongTokensAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSources(t, nil)
		statuses := map[int]int{}
		for range 50 {
			status, _ := callRegistration(s, "PUT", "/v1/workers/w1", "guess-0123456789abcdef", "{}")
			statuses[status]++
		}
		if statuses[401] != failureBurst || statuses[429] != 50-failureBurst {
			t.Errorf("answers are %v", statuses)
		}
		if status, _ := callRegistration(s, "PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000"}`); status != 200 {
			t.Errorf("the right token from the same address: %d", status)
		}
		time.Sleep(failureRefill)
		if status, _ := callRegistration(s, "PUT", "/v1/workers/w1", "guess", "{}"); status != 401 {
			t.Errorf("after a while: %d", status)
		}
	})
	var p failureLimiter
	now := time.Unix(1e9, 0)
	for i := range 2 * maxLimitedAddrs {
		p.allowFailure(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if len(p.clearedAt) > maxLimitedAddrs {
		t.Errorf("%d addresses are remembered", len(p.clearedAt))
	}
	if !p.allowFailure(netip.MustParseAddr("10.9.9.9"), now.Add(time.Hour)) {
		t.Error("addresses are never forgotten")
	}
}

func TestLeasesExpireWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported [][]Worker
		var log bytes.Buffer
		s := newTestSources(t, func(c *Config) {
			c.OnChange = func(ws []Worker) { reported = append(reported, ws) }
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		put := func(name, body string) {
			if status, body := callRegistration(s, "PUT", "/v1/workers/"+name, tokenA, body); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
		}
		put("w1", `{"url":"http://10.0.0.1:8000"}`)
		put("w2", `{"url":"http://10.0.0.2:8000"}`)
		for range 30 {
			time.Sleep(10 * time.Second)
			put("w1", `{"url":"http://10.0.0.1:8000"}`)
		}
		synctest.Wait()
		if n := len(reported); n != 3 || len(reported[1]) != 3 || len(reported[2]) != 2 {
			t.Fatalf("reported %d times, want both workers once and w2's end once: %v", n, reported)
		}
		if st := s.Stats(); st.ExpiredLeases != 1 || st.Registrations != 32 {
			t.Errorf("counted %+v", st)
		}
		put("w1", `{"url":"http://10.0.0.1:8000","labels":{"a":"b"}}`)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(reported); n != 4 || reported[3][1].Labels["a"] != "b" {
			t.Errorf("a change of labels is not reported: %v", reported)
		}
		if status, _ := callRegistration(s, "DELETE", "/v1/workers/w1", tokenA, ""); status != 200 {
			t.Errorf("leaving: %d", status)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(reported); n != 5 || len(reported[4]) != 1 {
			t.Errorf("after w1 left: %v", reported[n-1])
		}
		s.Stop()
		if strings.Count(log.String(), "lease was not renewed") != 1 || strings.Contains(log.String(), tokenA) {
			t.Errorf("logged:\n%s", &log)
		}
	})
}

func TestRegisteredWorkersSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	with := func(change func(*Config)) *Sources {
		return newTestSources(t, func(c *Config) {
			c.Dir = dir
			if change != nil {
				change(c)
			}
		})
	}
	s := with(nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	callRegistration(s, "PUT", "/v1/workers/w1", tokenA, `{"url":"http://10.0.0.1:8000","gpu":"H100","labels":{"a":"b"}}`)
	callRegistration(s, "PUT", "/v1/workers/w2", tokenB, `{"url":"http://10.1.0.2:8000"}`)
	file := filepath.Join(dir, "registered.json")
	var written []byte
	testkit.Eventually(t, "both registrations are on disk", func() bool {
		b, err := os.ReadFile(file)
		written = b
		return err == nil && bytes.Contains(b, []byte("w2"))
	})
	if bytes.Contains(written, []byte(tokenA)) {
		t.Error("a token is on disk")
	}
	s.Stop()
	names := func(s *Sources) string {
		var out []string
		for _, w := range s.lists[SourceRegistered] {
			out = append(out, w.Name+w.GPU+w.Labels["a"])
		}
		return strings.Join(out, " ")
	}
	if got := names(with(nil)); got != "w1H100b w2" {
		t.Errorf("recalled %q", got)
	}
	if got := names(with(func(c *Config) { c.Registration.Allow = []string{"10.0.0.0/16"} })); got != "w1H100b" {
		t.Errorf("with a narrower allow recalled %q", got)
	}
	if got := names(with(func(c *Config) { c.Registration.Tokens = c.Registration.Tokens[1:] })); got != "w2" {
		t.Errorf("with a token withdrawn recalled %q", got)
	}
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(with(nil)); got != "" {
		t.Errorf("from a broken file recalled %q", got)
	}
}

func TestTokenFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("# two\n\n" + spec.HashKey(tokenA) + "\n")
	var log bytes.Buffer
	s := newTestSources(t, func(c *Config) {
		c.Registration.Tokens, c.Registration.TokenFile = nil, file
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	tk := s.registrationServer.tokens
	now := time.Now()
	opens := func(token string) bool {
		now = now.Add(2 * tokenCheckInterval)
		_, ok := tk.matchToken(token, now)
		return ok
	}
	if !opens(tokenA) || opens(tokenB) {
		t.Fatal("the first file is not in force")
	}
	put(spec.HashKey(tokenB) + "\n# longer than it was\n")
	if opens(tokenA) || !opens(tokenB) {
		t.Error("the second file is not in force")
	}
	put(tokenA + "\n")
	opens(tokenB)
	if !opens(tokenB) || strings.Count(log.String(), "token file refused") != 1 || strings.Contains(log.String(), tokenA) {
		t.Errorf("a file with a plain token: %s", &log)
	}
	if err := s.Reload(); err == nil || strings.Contains(err.Error(), tokenA) {
		t.Errorf("reloading it says %v", err)
	}
	for _, c := range []config.Registration{{TokenFile: file + ".none"}, {TokenFile: file}, {Tokens: []string{"x"}}, {}} {
		c.Listen = "unused"
		if _, err := New(Config{OnChange: func([]Worker) {}, Registration: c}); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// TestProcessPauseExpiresNoLeases: after an hour of suspension every lease is past its end. Each worker gets a full
// term to renew, and only leases without a renewal end.
func TestProcessPauseExpiresNoLeases(t *testing.T) {
	b := newLeaseTable(3, 30*time.Second)
	now := time.Unix(1e9, 0)
	for i, name := range []string{"a", "b", "c"} {
		if _, no := b.putLease(workerNamed(name, fmt.Sprintf("http://10.0.0.%d:8000", i+1)), tokenHash{1}, now.Add(time.Duration(i)*time.Second)); no != nil {
			t.Fatal(no)
		}
	}
	due := b.nextExpiry()
	now = due.Add(time.Hour)
	if gone := b.expireDue(now, due); len(gone) > 0 || len(b.leasedWorkers()) != 3 {
		t.Fatalf("after an hour's stop %v are taken for gone", gone)
	}
	if _, no := b.putLease(workerNamed("b", "http://10.0.0.2:8000"), tokenHash{1}, now.Add(10*time.Second)); no != nil {
		t.Fatal(no)
	}
	due = b.nextExpiry()
	if gone := b.expireDue(due.Add(time.Second), due); !slices.Equal(gone, []string{"a", "c"}) {
		t.Errorf("a term later %v are gone, want those that have not renewed", gone)
	}
}

// TestLeaseTable: a name and a URL have one lease, only the owner ends a lease, and the bound holds.
func TestLeaseTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newLeaseTable(3, 30*time.Second)
		now := time.Unix(1e9, 0)
		type leased struct {
			by    tokenHash
			until time.Time
		}
		model := map[string]leased{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			by := tokenHash{byte(rapid.IntRange(1, 2).Draw(t, "owner"))}
			held, is := model[name]
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				url := fmt.Sprintf("http://10.0.0.%d:8000", rapid.IntRange(1, 5).Draw(t, "url"))
				if _, no := b.putLease(workerNamed(name, url), by, now); no == nil {
					if is && held.by != by {
						t.Fatalf("%s was taken over", name)
					}
					model[name] = leased{by, now.Add(30 * time.Second)}
				}
			case 1:
				if no := b.endLease(name, by); (no == nil) != (is && held.by == by) {
					t.Fatalf("%s leaves: %v", name, no)
				} else if no == nil {
					delete(model, name)
				}
			case 2:
				for _, n := range b.expireLeases(now) {
					if now.Before(model[n].until) {
						t.Fatalf("%s expired early", n)
					}
					delete(model, n)
				}
				if next := b.nextExpiry(); !next.IsZero() && !next.After(now) {
					t.Fatal("a lease that is over was left")
				}
			}
			urls := map[string]bool{}
			for _, w := range b.leasedWorkers() {
				if urls[w.URL] {
					t.Fatalf("%s twice", w.URL)
				}
				urls[w.URL] = true
			}
			if len(urls) > 3 || !slices.Equal(slices.Sorted(maps.Keys(model)), slices.Sorted(maps.Keys(b.leases))) {
				t.Fatalf("the table has %v, want %v", b.leases, model)
			}
		}
	})
}

func FuzzDecodeRegistration(f *testing.F) {
	f.Add([]byte(`{"url":"http://10.0.0.1:8000","gpu":"H100x4","models":["a"],"weight":2,"engine":"vllm","metrics":"http://10.0.0.1/m","gpu_metrics":"","gpus":["0"],"wake":true,"labels":{"a":"b"}}`))
	f.Add([]byte(`{"url":"x","url":"y"}`))
	f.Add([]byte(`{"labels":{"a":1}} `))
	f.Add([]byte(`{"labels":null,"models":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := DecodeRegistration(text)
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", r, err)
		}
		if _, err := DecodeRegistration(again); err != nil {
			t.Fatalf("%s was taken, and what it says is refused: %v", text, err)
		}
		if len(r.Labels) > maxLabels || len(r.Models) > maxListItems {
			t.Fatal("more than the bounds")
		}
	})
}

func FuzzTokensAndStoredLeases(f *testing.F) {
	f.Add([]byte(spec.HashKey("a")))
	f.Add([]byte(`[{"Owner":"00","Worker":{"Name":"a","URL":"http://10.0.0.1:1"}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if found, err := parseTokens(text); err != nil && len(found) > 0 || len(found) > maxTokens {
			t.Fatalf("%d tokens, %v", len(found), err)
		}
		entries, _ := decodeLeases(text) // empty after an error
		for _, e := range entries {
			if w, _, ok := e.restoreWorker(); ok {
				_ = CheckWorkers([]Worker{w})
			}
		}
	})
}
