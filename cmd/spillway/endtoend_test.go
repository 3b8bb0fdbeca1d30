package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
)

// TestAllTiersEndToEnd runs every tier in this process, from config files, and uses it by commands, DNS and HTTP.
func TestAllTiersEndToEnd(t *testing.T) {
	w := startInProcessFleet(t, 1, 2)
	t.Run("reasons", w.testDNSExplanations)
	t.Run("status", w.testStatus)
	t.Run("explain", w.testExplain)
	t.Run("drain", w.testDrain)
	t.Run("straight", w.testDirectRequest)
	t.Run("redirect", w.testRedirect)
	t.Run("disconnect", w.testDisconnect)
	t.Run("strangers", w.testWrongCertificates)
	t.Run("apply", w.testApply)
	t.Run("signing", w.testDNSSEC)
}

func (w *inProcessFleet) testDNSExplanations(t *testing.T) {
	w.waitUntilFresh(t)
	seen := map[string]bool{}
	for from, subnet := range clientSubnets() {
		why, err := w.queryExplanation(w.DNSAddrs()[0], subnet)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"service": fleet.ServiceName, "reason": "nearest", "region": from, "region_state": "fresh", "spec_version": "1"} {
			if got := why.textValue(key); got != want {
				t.Errorf("_why for a client near %s has %s=%q, want %q", from, key, got, want)
			}
		}
		if why.textValue("rtt_ms") == "" || why.textValue("wait_ms") == "" {
			t.Errorf("_why does not give the cost: %q", why.texts)
		}
		seen[why.textValue("region")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three clients are sent to %v", seen)
	}
}

// waitUntilFresh waits until every name server has a recent report of every region: on a busy machine reports may be late.
func (w *inProcessFleet) waitUntilFresh(t *testing.T) {
	t.Helper()
	waitForSuccess(t, testTimeout, "every region is fresh to every name server", func() error {
		for _, server := range w.DNSAddrs() {
			for from, subnet := range clientSubnets() {
				why, err := w.queryExplanation(server, subnet)
				if err != nil {
					return err
				}
				if state := why.textValue("region_state"); state != "fresh" {
					return fmt.Errorf("%s is %s to %s", from, state, server)
				}
			}
		}
		return nil
	})
}

func (w *inProcessFleet) testStatus(t *testing.T) {
	waitForSuccess(t, testTimeout, "status shows every tier", func() error { // on a busy machine a report may be late
		out := w.mustRunSpillway(t, "status", "--workers")
		for _, want := range []string{
			`(?m)^g1 \(global\)  spec v1  plan \d+, \S+ old$`,
			`(?m)^raft: leader g\d, this node is (leader|follower), term \d+, applied \d+, 3 voters$`,
			`(?m)^NAME +STATE +HEALTH +AGE +MODEL +READY +RUNNING`,
			`(?m)^frankfurt +reporting +ready +\d+ms +llama-3.1-8b +1/1 `,
			`(?m)^  a \(tokyo-a-local1\) +reporting +ready `,
			`(?m)^    w1 (H100|A100-80|L40S|L4) +ready `,
		} {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("nothing like %s:\n%s", want, out)
			}
		}
		return nil
	})
	var s admin.Status
	if err := json.Unmarshal([]byte(w.mustRunSpillway(t, "status", "-o", "json", "--server", adminServerURL("global", "g2"))), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node != "g2" || len(s.Regions) != 3 || s.Raft == nil || len(s.Raft.Voters) != 3 {
		t.Errorf("the JSON status has node %q, %d regions, raft %+v", s.Node, len(s.Regions), s.Raft)
	}
	var spec admin.SpecAnswer
	if err := json.Unmarshal([]byte(w.mustRunSpillway(t, "get", "spec", "--linearizable", "-o", "json", "--server", adminServerURL("global", "g3"))), &spec); err != nil || spec.Version != s.SpecVersion || !strings.Contains(spec.Text, fleet.ServiceName) {
		t.Errorf("get spec prints version %d (%v), want %d", spec.Version, err, s.SpecVersion)
	}
	if out := w.mustRunSpillway(t, "get", "drains", "--linearizable"); out != "nothing is drained\n" {
		t.Errorf("get drains prints %q", out)
	}
	own := w.mustRunSpillway(t, "status", "--server", adminServerURL("regional", "tokyo-gw1"))
	if !strings.Contains(own, "tokyo-gw1 (regional)") || !strings.Contains(own, "(tokyo-a-local1)") || strings.Contains(own, "(frankfurt-a-local1)") {
		t.Errorf("a gateway's status does not show the zones of its own region alone:\n%s", own)
	}
}

func (w *inProcessFleet) testExplain(t *testing.T) {
	out := w.mustRunSpillway(t, "explain", "--from", "198.51.100.10", "--model", "llama-3.1-8b")
	for _, want := range []string{
		`(?m)^global \(g1\): `, `(?m)^regional \(frankfurt-gw1\): `, `(?m)^local \(frankfurt/a/frankfurt-a-local1\): `,
		`(?m)^  \* +frankfurt +\d+\.\dms`, `(?m)^    +tokyo +\d+\.\dms`, `(?m)CANDIDATE +COST +RTT`, `(?m)^  chosen: frankfurt \(`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("explain shows nothing like %s:\n%s", want, out)
		}
	}
	// Residency overrides distance, and the explanation shows it.
	out = w.mustRunSpillway(t, "explain", "--from", "203.0.113.7", "--model", "llama-3.1-8b", "--tenant", "berlin")
	if !strings.Contains(out, "chosen: frankfurt") || !strings.Contains(out, "residency") {
		t.Errorf("the explanation for a tenant with residency eu does not show it:\n%s", out)
	}
	_, _, err := runSpillway(t, "explain", "--from", "192.0.2.1", "--model", "gpt-9")
	if err == nil || !strings.Contains(err.Error(), "gpt-9") {
		t.Errorf("explaining an unknown model: %v", err)
	}
}

// testDrain drains a region at one node and undrains it at another: all nodes must apply each within 2 s.
func (w *inProcessFleet) testDrain(t *testing.T) {
	const bound = 2 * time.Second
	for _, region := range []string{"frankfurt", "tokyo"} {
		timed.AssertWithin(t, "draining "+region, func() time.Duration {
			began := time.Now()
			out := w.mustRunSpillway(t, "drain", "region", region, "--reason", "kernel upgrade", "--server", adminServerURL("global", "g2"))
			if !strings.Contains(out, "draining region "+region) {
				t.Errorf("drain prints %q", out)
			}
			waitForSuccess(t, testTimeout, "clients of "+region+" go to its neighbour", func() error { return w.checkSteering(nearestRegions(region)) })
			took := time.Since(began)
			w.checkDrainShown(t, region)
			began = time.Now()
			if out := w.mustRunSpillway(t, "undrain", "region", region, "--server", adminServerURL("global", "g3")); !strings.Contains(out, "region "+region+" is no longer drained") {
				t.Errorf("undrain prints %q", out)
			}
			called := time.Since(began)
			// A plan that was made during the drain may still be applied after it, and must be replaced.
			back := waitUntilStable(t, bound, "clients of "+region+" are back", func() error { return w.checkSteering(nearestRegions()) })
			return max(took, called+back)
		}(), bound)
	}
	_, _, err := runSpillway(t, "drain", "region", "mars")
	if err == nil || !strings.Contains(err.Error(), "mars") {
		t.Errorf("draining a region that does not exist: %v", err)
	}
	if _, _, err = runSpillway(t, "undrain", "region", "tokyo"); err == nil || !strings.Contains(err.Error(), "tokyo") {
		t.Errorf("undraining a region that is not drained: %v", err)
	}
}

// checkDrainShown checks that _why, status and explain show a drain.
func (w *inProcessFleet) checkDrainShown(t *testing.T, region string) {
	t.Helper()
	for _, server := range w.DNSAddrs() {
		why, err := w.queryExplanation(server, clientSubnets()[region])
		if err != nil {
			t.Fatal(err)
		}
		if why.textValue("not") != region+" draining" && why.textValue("not") != region+" drained" {
			t.Errorf("_why does not show that %s is drained: %q", region, why.texts)
		}
	}
	want := regexp.MustCompile(`(?m)^drain: ` + region + ` until undrained \(kernel upgrade, by uid:\d+\)`)
	// A node follows the drain in the region's own report, which may arrive before the replicated drain.
	waitForSuccess(t, testTimeout, "status shows the drain with its reason", func() error {
		if out := w.mustRunSpillway(t, "status"); !want.MatchString(out) {
			return fmt.Errorf("it shows\n%s", out)
		}
		return nil
	})
}

func (w *inProcessFleet) testApply(t *testing.T) {
	text, err := os.ReadFile(w.SpecPath())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, from, to string) string {
		changed := strings.Replace(string(text), from, to, 1)
		if changed == string(text) {
			t.Fatalf("the spec has no %q", from)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := put("bad.yaml", "residency: [eu]", "residency: [mars]")
	if _, _, err := runSpillway(t, "apply", "-f", bad); err == nil {
		t.Error("a spec with a mistake was applied")
	}
	// Only clients with recent demand are moved: those of this machine, which is near Virginia.
	repelled := put("repelled.yaml", "residency: [us]", "residency: [us]\n    bias_ms: 9000")
	waitForSuccess(t, testTimeout, "the dry run shows changes and moves", func() error {
		out := w.mustRunSpillway(t, "apply", "-f", repelled, "--dry-run")
		for _, want := range []string{
			`(?m)^dry run: spec v1 stays in force$`, `(?m)^CHANGE +FROM +TO$`, `(?m)bias_ms.* 9000`, `(?m)CLIENT AREA +SERVICE +FROM +TO`, `(?m)virginia +frankfurt`,
			`(?m)^replayed 1?\d minutes? of observed demand against the current capacity and waits`, `(?m)^SERVICE +DEMAND MOVED +CLIENT AREAS MOVED +P50 RTT \+ WAIT +WITHOUT DEMAND\n.* [1-9][\d.]* % +1 of \d+ +[\d.]+ms -> [\d.]+ms +\d+ areas, \d+ would move$`,
		} {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("nothing like %s:\n%s", want, out)
			}
		}
		return nil
	})
	if err := w.checkSteering(nearestRegions()); err != nil {
		t.Errorf("a dry run or a bad spec moved clients: %v", err)
	}
	if out := w.mustRunSpillway(t, "apply", "-f", repelled, "--server", adminServerURL("global", "g3")); !strings.Contains(out, "applied: spec v2 is in force") {
		t.Errorf("apply prints:\n%s", out)
	}
	waitForSuccess(t, testTimeout, "the new spec steers", func() error { return w.checkSteering(nearestRegions("virginia")) })
	for verb, like := range map[string]string{
		"show":    `(?s)^plan \d+: in force at g\d for .*, made by g\d at .* \(\w+\)\nspec v2, term \d+, \d+ bytes.*REGION +WAIT +OVERLOAD COST +UNPLACED +AREAS +RAMP.*\n  virginia `,
		"diff":    `^from plan \d+ \(made by g\d at .* \(\w+\)\) to plan \d+ `,
		"history": `(?m)^EPOCH +TIME +REASON +COST +BEFORE +BYTES +SPEC +AREAS MOVED +SHARE +BY\n\d+ `,
	} {
		waitForSuccess(t, testTimeout, "plan "+verb, func() error {
			out, _, err := runSpillway(t, "plan", verb, "--server", adminServerURL("global", "g1"))
			if err == nil && !regexp.MustCompile(like).MatchString(out) {
				err = fmt.Errorf("nothing like %s:\n%s", like, out)
			}
			return err // the plan of the new spec may not be published yet
		})
	}
	if out := w.mustRunSpillway(t, "apply", "-f", repelled); !strings.Contains(out, "no changes") {
		t.Errorf("applying the same again prints:\n%s", out)
	}
	if _, _, err := runSpillway(t, "apply", "-f", w.SpecPath(), "--based-on", "1"); err == nil || !strings.Contains(err.Error(), "is in force, not 1") {
		t.Errorf("applying on an old version: %v", err)
	}
}

// mustRunSpillway runs a command that must succeed, at the first global node unless it names another.
func (w *inProcessFleet) mustRunSpillway(t *testing.T, args ...string) string {
	t.Helper()
	if !strings.Contains(strings.Join(args, " "), "--server") {
		args = append(args, "--server", adminServerURL("global", "g1"))
	}
	out, errOut, err := runSpillway(t, args...)
	if err != nil {
		t.Fatalf("spillway %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// newStreamRequest returns a streaming request.
func (w *inProcessFleet) newStreamRequest(ctx context.Context, t *testing.T, url string, tokens int) *http.Request {
	t.Helper()
	body := fmt.Sprintf(`{"model":"llama-3.1-8b","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"Where do I run?"}]}`, tokens)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.ReadTenantKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// checkStream reads a stream to its end.
func checkStream(t *testing.T, resp *http.Response, region string, tokens int) {
	t.Helper()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("answer %s, %s: %s", resp.Status, resp.Header.Get("Content-Type"), b)
	}
	if route := resp.Header.Get("X-Spillway-Route"); !strings.HasPrefix(route, region+"/a/w") {
		t.Errorf("served by %q, want a worker of %s", route, region)
	}
	events, done := 0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			done = true
		case strings.Contains(data, `"error"`):
			t.Errorf("the stream has the event %s", data)
		case strings.Contains(data, `"content":`):
			events++
		}
	}
	if !done || events < tokens {
		t.Errorf("the stream has %d events with content and done=%v, want %d", events, done, tokens)
	}
}

func (w *inProcessFleet) testDirectRequest(t *testing.T) {
	const tokens = 12
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, g := range w.NodesByRole("regional") {
		resp, err := client.Do(w.newStreamRequest(t.Context(), t, fmt.Sprintf("http://%s/v1/chat/completions", g.Addr["http"]), tokens))
		if err != nil {
			t.Fatal(err)
		}
		checkStream(t, resp, g.Region, tokens)
	}
}

// testRedirect posts to a global node and follows the redirect as most clients do: without the key.
func (w *inProcessFleet) testRedirect(t *testing.T) {
	const tokens = 12
	key, err := w.ReadTenantKey("acme")
	if err != nil || len(key) < 20 {
		t.Fatal(err)
	}
	for i, site := range fleet.AllSites()[:3] {
		source, ok := w.ClientAddr(i)
		if !ok && i > 0 {
			return // this machine has only one client address
		}
		g := w.NodesByRole("global")[i%3].Addr["http"]
		hops := 0
		client := &http.Client{
			Transport: &http.Transport{DialContext: w.newDialFunc(source, g)},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				hops++
				if r.URL.Host != via[0].URL.Host {
					r.Header.Del("Authorization")
				}
				if want := fmt.Sprintf("%s.chat.spillway.test:%d", site.Name, w.gatewayOf(site.Name).Addr["http"].Port()); r.URL.Host != want || !r.URL.Query().Has("spw") {
					t.Errorf("redirected to %s, want a ticket for %s", r.URL.Redacted(), want)
				}
				if strings.Contains(r.URL.String(), key) {
					t.Error("the URL contains the key")
				}
				return nil
			},
		}
		resp, err := client.Do(w.newStreamRequest(t.Context(), t, fmt.Sprintf("http://chat.spillway.test:%d/v1/chat/completions", g.Port()), tokens))
		if err != nil {
			t.Fatal(err)
		}
		checkStream(t, resp, site.Name, tokens)
		if hops != 1 {
			t.Errorf("%d redirects, want one", hops)
		}
		client.CloseIdleConnections()
	}
}

// newDialFunc returns a dial function that uses source. It resolves the service's name to the global node, as curl --resolve
// does, and every other name by the fleet's name servers.
func (w *inProcessFleet) newDialFunc(source netip.Addr, global netip.AddrPort) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{}
		if source.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if host == "chat.spillway.test" {
			return d.DialContext(ctx, network, global.String())
		}
		addrs, err := lookupIPv4(ctx, w.DNSAddrs()[0], host+".")
		if err != nil {
			return nil, err
		}
		return d.DialContext(ctx, network, net.JoinHostPort(addrs[0].String(), port))
	}
}

// testDisconnect disconnects during a long response: the worker's gauge must show the sequence freed within 100 ms.
func (w *inProcessFleet) testDisconnect(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("http://%s/v1/chat/completions", w.gatewayOf("virginia").Addr["http"])
	timed.AssertWithin(t, "freeing the sequence of a client that left", func() time.Duration {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp, err := client.Do(w.newStreamRequest(ctx, t, url, 4000))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		n, ok := w.findWorker(resp.Header.Get("X-Spillway-Route"))
		if !ok {
			t.Fatalf("the answer names no worker: %q", resp.Header.Get("X-Spillway-Route"))
		}
		if running, err := readRunningGauge(client, n); err != nil || running != 1 {
			t.Fatalf("the worker's gauge shows %v running (%v) while one is", running, err)
		}
		leave()
		return waitForSuccess(t, testTimeout, "the worker's gauge is back at zero", func() error {
			if running, err := readRunningGauge(client, n); err != nil || running != 0 {
				return fmt.Errorf("%v running (%v)", running, err)
			}
			return nil
		})
	}(), 100*time.Millisecond)
}

// readRunningGauge returns the number of running sequences from a worker's metrics.
func readRunningGauge(client *http.Client, n fleet.Node) (float64, error) {
	page, err := fetchPage(client, fmt.Sprintf("http://%s/metrics", n.Addr["http"]))
	if err != nil {
		return 0, err
	}
	return readSample(page, "vllm:num_requests_running{")
}

func fetchPage(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(b), err
}

// TestGlobalNodesProxyRequests sends requests to the global nodes of a fleet as a client that cannot follow redirects.
func TestGlobalNodesProxyRequests(t *testing.T) {
	w := startInProcessFleet(t, 1, 2)
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context, g, tokens int) *http.Request {
		r := w.newStreamRequest(ctx, t, fmt.Sprintf("http://%s/v1/chat/completions", w.NodesByRole("global")[g].Addr["http"]), tokens)
		r.Host = "chat.spillway.test"
		r.Header.Set("Prefer", "proxy")
		return r
	}
	text, err := os.ReadFile(w.SpecPath())
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "proxy.yaml")
	for _, mode := range []struct {
		value string
		want  int
	}{{"never", http.StatusTemporaryRedirect}, {"asked", http.StatusOK}} {
		spec := strings.Replace(string(text), "    ttl: 5s\n", "    ttl: 5s\n    redirect_proxy: "+mode.value+"\n", 1)
		if err := os.WriteFile(changed, []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		w.mustRunSpillway(t, "apply", "-f", changed, "--reason", "old clients")
		waitForSuccess(t, testTimeout, "every node has redirect_proxy: "+mode.value, func() error {
			for g := range 3 {
				resp, err := client.Do(ask(t.Context(), g, 1))
				if err != nil {
					return err
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != mode.want {
					return fmt.Errorf("node %d answers %s", g, resp.Status)
				}
			}
			return nil
		})
	}

	t.Run("stream", func(t *testing.T) {
		resp, err := client.Do(ask(t.Context(), 1, 12))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("Preference-Applied") != "proxy" || resp.Header.Get("Location") != "" {
			t.Errorf("the answer's header is %v", resp.Header)
		}
		checkStream(t, resp, "virginia", 12) // this machine is near Virginia
	})

	t.Run("hang-up", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp, err := client.Do(ask(ctx, 2, 4000))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		n, ok := w.findWorker(resp.Header.Get("X-Spillway-Route"))
		if !ok {
			t.Fatalf("the answer names no worker: %q", resp.Header.Get("X-Spillway-Route"))
		}
		if running, err := readRunningGauge(client, n); err != nil || running != 1 {
			t.Fatalf("the worker's gauge shows %v running (%v) while one is", running, err)
		}
		leave()
		waitForSuccess(t, testTimeout, "the worker is free again", func() error {
			if running, err := readRunningGauge(client, n); err != nil || running != 0 {
				return fmt.Errorf("%v running (%v)", running, err)
			}
			return nil
		})
	})

	t.Run("counted", func(t *testing.T) {
		waitForSuccess(t, testTimeout, "the node's metrics show it", func() error {
			page, err := fetchPage(client, fmt.Sprintf("http://%s/metrics", w.NodesByRole("global")[2].Addr["metrics"]))
			if err != nil {
				return err
			}
			for _, want := range []string{`spillway_global_proxied_total\{.*outcome="client_gone"\} 1`, `spillway_global_proxied_total\{.*outcome="served"\} [1-9]`, `spillway_global_proxied_in_flight(\{.*\})? 0`} {
				if !regexp.MustCompile(want).MatchString(page) {
					return fmt.Errorf("nothing like %s", want)
				}
			}
			return nil
		})
	})

	t.Run("log", func(t *testing.T) {
		key, err := w.ReadTenantKey("acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{key, "Where do I run", "spw="} {
			found := ""
			testkit.HoldsFor(t, 100*time.Millisecond, "the log has no secrets", func() bool {
				if found = w.logs.grepLines(regexp.QuoteMeta(secret), 3); found != "" {
					t.Errorf("the log contains %q:\n%s", secret, found)
				}
				return found == ""
			})
		}
	})
}
