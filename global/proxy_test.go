package global

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/ticket"
)

// proxyFixture is a node that proxies requests, with a test gateway in each region.
type proxyFixture struct {
	*Server
	url string // of its redirect endpoint
	key []byte
	log *testkit.LogBuffer
}

// newProxyFixture has gateways answer by region; a region without an answer cannot be connected to.
func newProxyFixture(t *testing.T, word string, room int, answers map[string]http.HandlerFunc) *proxyFixture {
	t.Helper()
	text := strings.Replace(testSpecText(), "  - name: chat.api.example.\n", "  - name: chat.api.example.\n    redirect_proxy: "+word+"\n", 1)
	text += "routing: {max_body: 100000}\n"
	for region, addr := range testGatewayAddrs {
		l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		at := l.Addr().String()
		text = strings.Replace(text, "http://"+addr.String()+":8080", "http://"+at, 1)
		if answers[region] == nil {
			l.Close()
			continue
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: answers[region]}}
		s.Start()
		t.Cleanup(s.Close)
	}
	p := &proxyFixture{key: []byte(strings.Repeat("k", 32)), log: &testkit.LogBuffer{}}
	p.Server = &Server{
		cfg: Config{MaxProxiedRequests: room}, log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		metrics: &nodeMetrics{redirects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "redirects"}, []string{"outcome"})},
	}
	p.Server.snapshot.Store(p.buildSnapshotFor(t, text))
	p.newParts()
	p.proxy = newRequestProxy(p.Server)
	p.redirects.metrics, p.redirects.proxy = p.metrics, p.proxy
	t.Cleanup(p.proxy.closeIdleConns)
	door := httptest.NewUnstartedServer(forward.GuardHandler(http.HandlerFunc(p.redirects.serveRedirect)))
	door.Config.ReadTimeout, door.Config.WriteTimeout = 15*time.Second, 15*time.Second // as in production
	door.Start()
	t.Cleanup(door.Close)
	p.url = door.URL
	return p
}

// buildSnapshotFor returns a snapshot of the spec in which all regions are healthy.
func (p *proxyFixture) buildSnapshotFor(t *testing.T, text string) *nodeSnapshot {
	t.Helper()
	atlas, err := geofiles.OpenAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newNodePolicy(1, []byte(text), atlas)
	if err != nil {
		t.Fatal(err)
	}
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		s := summaryWithCapacity(10000, 8)
		s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
		book.PutSummary(s, now)
	}
	st := &consensus.State{TicketKeys: []consensus.TicketKey{{Secret: p.key, At: now.Add(-time.Hour)}}}
	v := testSnapshot(f, st, book.BuildView(now), soloVotes(), now, true)
	dryRunSide{v.SteeringSnapshot}.solveForDemand(nil)
	return v
}

// sameInAllRegions returns one answer for all regions.
func sameInAllRegions(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"virginia": h, "frankfurt": h, "tokyo": h}
}

// postPrompt prepares a request of a client that cannot follow redirects.
func (p *proxyFixture) postPrompt(ctx context.Context, t *testing.T, body io.Reader, change func(*http.Request)) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat/completions?a=1", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = strings.TrimSuffix(testService, ".")
	r.Header.Set("Authorization", "Bearer "+testAPIKey)
	r.Header.Set("Prefer", "proxy")
	if change != nil {
		change(r)
	}
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	return client.Do(r)
}

func (p *proxyFixture) mustPostPrompt(t *testing.T, body io.Reader, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	resp, err := p.postPrompt(t.Context(), t, body, change)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func (p *proxyFixture) outcomeCount(outcome string) float64 {
	return testutil.ToFloat64(p.proxy.outcomes.WithLabelValues(outcome))
}

const testPrompt = `{"model":"m1","messages":[{"role":"user","content":"a secret of mine"}]}`

// TestProxyOnlyWhereAllowedAndRequested: no request is proxied unless the service allows it and, depending on
// redirect_proxy, the client requests it.
func TestProxyOnlyWhereAllowedAndRequested(t *testing.T) {
	ok := sameInAllRegions(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })
	for word, want := range map[string]map[string]int{
		"never":  {"": 307, "proxy": 307},
		"asked":  {"": 307, "proxy": 200, "respond-async, Proxy;x=1": 200, `x="proxy, proxy"`: 307, "proxy=no": 307},
		"always": {"": 200, "redirect": 307},
	} {
		p := newProxyFixture(t, word, 0, ok)
		for prefer, status := range want {
			resp, body := p.mustPostPrompt(t, strings.NewReader(testPrompt), func(r *http.Request) { r.Header.Set("Prefer", prefer) })
			if resp.StatusCode != status || status == 200 && body != "here" {
				t.Errorf("%s, Prefer: %s is answered %d %q, want %d", word, prefer, resp.StatusCode, body, status)
			}
			if applied := resp.Header.Get("Preference-Applied"); (applied == "proxy") != (status == 200 && word == "asked") {
				t.Errorf("%s, Prefer: %s: applied is %q", word, prefer, applied)
			}
		}
		if resp, _ := p.mustPostPrompt(t, nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer sk-wrong") }); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: a wrong key is answered %d", word, resp.StatusCode)
		}
	}
}

// TestProxySendsATicketInsteadOfTheKey: the gateway identifies the tenant by a ticket, not by the key, and no client
// address claimed by the client is forwarded.
func TestProxySendsATicketInsteadOfTheKey(t *testing.T) {
	type call struct {
		r    *http.Request
		body string
	}
	calls := make(chan call, 1)
	p := newProxyFixture(t, "asked", 0, sameInAllRegions(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		calls <- call{r.Clone(context.Background()), string(b)}
		w.Header().Set("Spillway-Secret", "1")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "teapot")
	}))
	resp, body := p.mustPostPrompt(t, strings.NewReader(testPrompt), func(r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "Via", "Spillway-Tenant", "Cookie", "Api-Key"} {
			r.Header.Set(name, "198.51.100.99")
		}
		r.Header.Set("X-Session-Id", "s1")
	})
	if resp.StatusCode != http.StatusTeapot || body != "teapot" || resp.Header.Get("Spillway-Secret") != "" {
		t.Errorf("answered %d %q %v", resp.StatusCode, body, resp.Header)
	}
	c := <-calls
	for _, name := range []string{"Authorization", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "Via", "Spillway-Tenant", "Cookie", "Api-Key", "Prefer"} {
		if v := c.r.Header.Get(name); v != "" {
			t.Errorf("%s: %s went on", name, v)
		}
	}
	if c.body != testPrompt || c.r.Header.Get("X-Forwarded-For") != "127.0.0.1" || c.r.Header.Get("X-Session-Id") != "s1" || c.r.URL.Path != "/v1/chat/completions" || c.r.URL.Query().Get("a") != "1" {
		t.Errorf("the gateway got %s %v %q", c.r.URL, c.r.Header, c.body)
	}
	tk, err := ticket.OpenTicket([][]byte{p.key}, c.r.URL.Query().Get(ticketParam), time.Now())
	if err != nil || tk.Tenant != "acme" || tk.Service != testService || tk.Client != "127.0.0.1" || !strings.HasPrefix(c.r.Host, tk.Region+"."+strings.TrimSuffix(testService, ".")) {
		t.Errorf("the ticket has %+v, %v, at host %s", tk, err, c.r.Host)
	}
	for _, secret := range []string{testAPIKey, "a secret of mine", c.r.URL.Query().Get(ticketParam)} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

// TestProxyStreamsBothWays: each piece of body and answer is forwarded before the next one arrives.
func TestProxyStreamsBothWays(t *testing.T) {
	p := newProxyFixture(t, "asked", 0, sameInAllRegions(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		for lines := bufio.NewScanner(r.Body); lines.Scan(); rc.Flush() {
			fmt.Fprintf(w, "data: %s\n\n", lines.Text())
		}
	}))
	in, out := io.Pipe()
	go io.WriteString(out, "one\n")
	resp, err := p.postPrompt(t.Context(), t, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i, word := range []string{"one", "two", "three"} {
		if i > 0 {
			io.WriteString(out, word+"\n")
		}
		line, err := events.ReadString('\n')
		if err != nil || line != "data: "+word+"\n" {
			t.Fatalf("event %d is %q, %v", i, line, err)
		}
		events.ReadString('\n')
	}
	out.Close()
	if rest, err := io.ReadAll(events); err != nil || len(rest) > 0 {
		t.Errorf("after the last event come %q, %v", rest, err)
	}
	testkit.Eventually(t, "it is counted", func() bool { return p.outcomeCount(outcomeServed) == 1 && len(p.proxy.slots) == 0 })
}

// TestProxyCancelsWithTheClient: a client that disconnects in the middle of a stream frees the resources of its
// request.
func TestProxyCancelsWithTheClient(t *testing.T) {
	left := make(chan struct{})
	p := newProxyFixture(t, "asked", 0, sameInAllRegions(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: x\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	ctx, leave := context.WithCancel(t.Context())
	resp, err := p.postPrompt(ctx, t, strings.NewReader(testPrompt), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Fatal("the gateway was not notified")
	}
	testkit.Eventually(t, "it is counted", func() bool { return p.outcomeCount(outcomeClientGone) == 1 && len(p.proxy.slots) == 0 })
}

// TestProxyIsBounded tests the bounds on concurrent requests, and on bytes of a body with and without a length.
func TestProxyIsBounded(t *testing.T) {
	entered, hold := make(chan struct{}, 9), make(chan struct{})
	p := newProxyFixture(t, "asked", 1, sameInAllRegions(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		if r.Header.Get("X-Hold") != "" {
			<-hold
		}
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			io.WriteString(w, "ok")
		}
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.postPrompt(t.Context(), t, nil, func(r *http.Request) { r.Header.Set("X-Hold", "1") })
	}()
	<-entered
	resp, _ := p.mustPostPrompt(t, strings.NewReader(testPrompt), nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many is answered %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	close(hold)
	<-done
	testkit.Eventually(t, "there is room again", func() bool { return len(p.proxy.slots) == 0 })

	large := strings.Repeat("x", 100_001)
	for name, body := range map[string]io.Reader{"with a length": strings.NewReader(large), "without": io.MultiReader(strings.NewReader(large))} {
		if resp, _ := p.mustPostPrompt(t, body, nil); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body %s over the bound is answered %d", name, resp.StatusCode)
		}
	}
	if resp, body := p.mustPostPrompt(t, io.MultiReader(strings.NewReader(large[1:])), nil); body != "ok" {
		t.Errorf("a body of the greatest length is answered %d", resp.StatusCode)
	}
	if n := p.outcomeCount("body_too_large"); n != 2 {
		t.Errorf("%v refusals of bodies are counted, want 2", n)
	}
}

// TestProxyRetriesInTheNextRegion tests the retry if the first region's gateways cannot be connected to, and the
// error if none can.
func TestProxyRetriesInTheNextRegion(t *testing.T) {
	hits := make(chan string, 9)
	answers := map[string]http.HandlerFunc{"frankfurt": func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		hits <- string(b)
		io.WriteString(w, "frankfurt")
	}}
	p := newProxyFixture(t, "asked", 0, answers)
	for _, body := range []string{testPrompt, strings.Repeat(" ", maxModelPeekBytes) + testPrompt} {
		resp, got := p.mustPostPrompt(t, strings.NewReader(body), nil)
		if got != "frankfurt" || <-hits != body {
			t.Fatalf("answered %d %q", resp.StatusCode, got)
		}
	}
	if n := testutil.ToFloat64(p.proxy.retries); n < 1 || n > 4 {
		t.Errorf("%v retries for two requests", n)
	}
	none := newProxyFixture(t, "asked", 0, nil)
	if resp, _ := none.mustPostPrompt(t, strings.NewReader(testPrompt), nil); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("without any gateway the answer is %d", resp.StatusCode)
	}
}

// TestProxyDoesNotSendTwice tests a request whose body was partly forwarded: the gateway accepts it and breaks the
// connection.
func TestProxyDoesNotSendTwice(t *testing.T) {
	var calls atomic.Int64
	p := newProxyFixture(t, "asked", 0, sameInAllRegions(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		calls.Add(1)
		panic(http.ErrAbortHandler)
	}))
	resp, _ := p.mustPostPrompt(t, strings.NewReader(testPrompt), nil)
	if resp.StatusCode != http.StatusBadGateway || calls.Load() != 1 {
		t.Errorf("answered %d after %d calls", resp.StatusCode, calls.Load())
	}
}

// TestProxyRefusesOtherTargets: not to names outside the spec, not to a service's own name, and not in a loop.
func TestProxyRefusesOtherTargets(t *testing.T) {
	p := newProxyFixture(t, "asked", 0, sameInAllRegions(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Query().Get(ticketParam)) }))
	for _, addr := range []string{"evil.example:80", "chat.api.example:80", "127.0.0.1:22", "ns1.api.example:53", "x.virginia.chat.api.example:80", "virginia.chat.api.example", ""} {
		if c, err := p.proxy.dialGateway(t.Context(), "tcp", addr); err == nil {
			c.Close()
			t.Errorf("connected to %q", addr)
		}
	}
	_, tk := p.mustPostPrompt(t, strings.NewReader(testPrompt), nil)
	resp, _ := p.mustPostPrompt(t, strings.NewReader(testPrompt), func(r *http.Request) { r.URL.RawQuery = ticketParam + "=" + tk })
	if resp.StatusCode != http.StatusLoopDetected {
		t.Errorf("a request that was passed on and came back is answered %d", resp.StatusCode)
	}
}

func FuzzHasPreference(f *testing.F) {
	for _, line := range []string{"proxy", `a="x, proxy";y, proxy ; z`, `"`, `a="\`, ",;,", "PROXY"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got := hasPreference([]string{line}, "proxy")
		if got && !strings.Contains(strings.ToLower(line), "proxy") {
			t.Fatalf("%q is treated as a request for the proxy", line)
		}
		if len(line) < maxPreferBytes-len("proxy, ") && !hasPreference([]string{"proxy, " + line}, "proxy") {
			t.Fatalf("before %q the preference is not seen", line)
		}
	})
}
