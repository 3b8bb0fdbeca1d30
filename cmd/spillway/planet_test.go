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
)

// TestPlanet runs every tier in this process, from the files that operators write, and uses it as people do.
func TestPlanet(t *testing.T) {
	w := wake(t, 1, 2)
	t.Run("reasons", w.testReasons)
	t.Run("status", w.testStatus)
	t.Run("explain", w.testExplain)
	t.Run("drain", w.testDrain)
	t.Run("straight", w.testStraight)
	t.Run("redirect", w.testRedirect)
	t.Run("disconnect", w.testDisconnect)
	t.Run("strangers", w.testStrangers)
	t.Run("apply", w.testApply)
	t.Run("signing", w.testSigning)
}

func (w *world) testReasons(t *testing.T) {
	w.untilFresh(t)
	seen := map[string]bool{}
	for from, subnet := range subnets() {
		why, err := w.why(w.DNS()[0], subnet)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"service": fleet.Service, "reason": "nearest", "region": from, "region_state": "fresh", "spec_version": "1"} {
			if got := why.text(key); got != want {
				t.Errorf("_why for a client beside %s says %s=%q, want %q", from, key, got, want)
			}
		}
		if why.text("rtt_ms") == "" || why.text("wait_ms") == "" {
			t.Errorf("_why does not give the cost: %q", why.texts)
		}
		seen[why.text("region")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three clients are sent to %v", seen)
	}
}

// untilFresh waits until every name server has heard every region lately: on a busy machine summaries may be late.
func (w *world) untilFresh(t *testing.T) {
	t.Helper()
	eventually(t, patience, "every region is fresh to every name server", func() error {
		for _, server := range w.DNS() {
			for from, subnet := range subnets() {
				why, err := w.why(server, subnet)
				if err != nil {
					return err
				}
				if state := why.text("region_state"); state != "fresh" {
					return fmt.Errorf("%s is %s to %s", from, state, server)
				}
			}
		}
		return nil
	})
}

func (w *world) testStatus(t *testing.T) {
	w.untilFresh(t)
	out := w.spillway(t, "status", "--workers")
	for _, want := range []string{
		`(?m)^g1 \(global\)  spec v1  plan \d+, \S+ old$`,
		`(?m)^raft: leader g\d, this node is (leader|follower), term \d+, applied \d+, 3 voters$`,
		`(?m)^NAME +STATE +AGE +MODEL +READY +RUNNING`,
		`(?m)^frankfurt +fresh +\d+ms +llama-3.1-8b +1/1 `,
		`(?m)^  a \(tokyo-a-local1\) +fresh `,
		`(?m)^    w1 (H100|A100-80|L40S|L4) +ready `,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("status shows nothing like %s:\n%s", want, out)
		}
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(w.spillway(t, "status", "-o", "json", "--server", socket("global", "g2"))), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node != "g2" || len(s.Regions) != 3 || s.Raft == nil || len(s.Raft.Voters) != 3 {
		t.Errorf("the JSON status has node %q, %d regions, raft %+v", s.Node, len(s.Regions), s.Raft)
	}
	var spec admin.SpecAnswer
	if err := json.Unmarshal([]byte(w.spillway(t, "get", "spec", "--linearizable", "-o", "json", "--server", socket("global", "g3"))), &spec); err != nil || spec.Version != s.SpecVersion || !strings.Contains(spec.Text, fleet.Service) {
		t.Errorf("get spec prints version %d (%v), want %d", spec.Version, err, s.SpecVersion)
	}
	if out := w.spillway(t, "get", "drains", "--linearizable"); out != "nothing is drained\n" {
		t.Errorf("get drains prints %q", out)
	}
	own := w.spillway(t, "status", "--server", socket("regional", "tokyo-gw1"))
	if !strings.Contains(own, "tokyo-gw1 (regional)") || !strings.Contains(own, "(tokyo-a-local1)") || strings.Contains(own, "(frankfurt-a-local1)") {
		t.Errorf("a gateway's status does not show the zones of its own region alone:\n%s", own)
	}
}

func (w *world) testExplain(t *testing.T) {
	out := w.spillway(t, "explain", "--from", "198.51.100.10", "--model", "llama-3.1-8b")
	for _, want := range []string{
		`(?m)^global \(g1\): `, `(?m)^regional \(frankfurt-gw1\): `, `(?m)^local \(frankfurt/a/frankfurt-a-local1\): `,
		`(?m)^  \* +frankfurt +\d+\.\dms`, `(?m)^    +tokyo +\d+\.\dms`, `(?m)CANDIDATE +COST +RTT`, `(?m)^  chosen: frankfurt \(`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("explain shows nothing like %s:\n%s", want, out)
		}
	}
	// Residency overrides nearness, and says so.
	out = w.spillway(t, "explain", "--from", "203.0.113.7", "--model", "llama-3.1-8b", "--tenant", "berlin")
	if !strings.Contains(out, "chosen: frankfurt") || !strings.Contains(out, "residency") {
		t.Errorf("a tenant that must stay in the EU is not shown to be sent there for that reason:\n%s", out)
	}
	_, _, err := spillway(t, "explain", "--from", "192.0.2.1", "--model", "gpt-9")
	if err == nil || !strings.Contains(err.Error(), "gpt-9") {
		t.Errorf("explaining an unknown model says %v", err)
	}
}

// testDrain takes a region away through one node and brings it back through another: all nodes must agree in 2 s.
func (w *world) testDrain(t *testing.T) {
	const bound = 2 * time.Second
	for _, region := range []string{"frankfurt", "tokyo"} {
		inTime(t, bound, "draining "+region, func() time.Duration {
			began := time.Now()
			out := w.spillway(t, "drain", "region", region, "--reason", "kernel upgrade", "--server", socket("global", "g2"))
			if !strings.Contains(out, "draining region "+region) {
				t.Errorf("drain prints %q", out)
			}
			eventually(t, patience, "clients of "+region+" go to its neighbour", func() error { return w.steered(places(region)) })
			took := time.Since(began)
			w.testDrained(t, region)
			began = time.Now()
			if out := w.spillway(t, "undrain", "region", region, "--server", socket("global", "g3")); !strings.Contains(out, "region "+region+" takes traffic again") {
				t.Errorf("undrain prints %q", out)
			}
			called := time.Since(began)
			// A plan that was made during the drain may still come into force after it, and must not stay.
			back := settles(t, bound, "clients of "+region+" are back", func() error { return w.steered(places()) })
			return max(took, called+back)
		})
	}
	_, _, err := spillway(t, "drain", "region", "mars")
	if err == nil || !strings.Contains(err.Error(), "mars") {
		t.Errorf("draining a region that does not exist says %v", err)
	}
	if _, _, err = spillway(t, "undrain", "region", "tokyo"); err == nil || !strings.Contains(err.Error(), "tokyo") {
		t.Errorf("undraining what is not drained says %v", err)
	}
}

// testDrained looks for the reason of a drain wherever somebody would look.
func (w *world) testDrained(t *testing.T, region string) {
	t.Helper()
	for _, server := range w.DNS() {
		why, err := w.why(server, subnets()[region])
		if err != nil {
			t.Fatal(err)
		}
		if why.text("not") != region+" draining" && why.text("not") != region+" drained" {
			t.Errorf("_why does not say that %s is drained: %q", region, why.texts)
		}
	}
	want := regexp.MustCompile(`(?m)^drain: ` + region + ` until undrained \(kernel upgrade, by uid:\d+\)`)
	// A node steers by the region's own word that it drains, which may come before the agreement does.
	eventually(t, patience, "status shows the drain with its reason", func() error {
		if out := w.spillway(t, "status"); !want.MatchString(out) {
			return fmt.Errorf("it shows\n%s", out)
		}
		return nil
	})
}

func (w *world) testApply(t *testing.T) {
	text, err := os.ReadFile(w.Spec())
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
	if _, _, err := spillway(t, "apply", "-f", bad); err == nil {
		t.Error("a spec with a mistake was applied")
	}
	// Moves are of clients that asked of late: those of this machine, which is beside Virginia.
	repelled := put("repelled.yaml", "residency: [us]", "residency: [us]\n    bias_ms: 9000")
	eventually(t, patience, "the dry run shows changes and moves", func() error {
		out := w.spillway(t, "apply", "-f", repelled, "--dry-run")
		for _, want := range []string{
			`(?m)^dry run: spec v1 stays in force$`, `(?m)^CHANGE +FROM +TO$`, `(?m)bias_ms.* 9000`, `(?m)CLIENTS OF +SERVICE +FROM +TO`, `(?m)virginia +frankfurt`,
			`(?m)^replayed 1?\d minutes? of observed demand`, `(?m)^SERVICE +DEMAND MOVED +CELLS MOVED +P50 RTT \+ WAIT +NO DEMAND SEEN\n.* [1-9][\d.]* % +1 of \d+ +[\d.]+ms -> [\d.]+ms +\d+ cells, \d+ would move$`,
		} {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("nothing like %s:\n%s", want, out)
			}
		}
		return nil
	})
	if err := w.steered(places()); err != nil {
		t.Errorf("a dry run or a bad spec moved clients: %v", err)
	}
	if out := w.spillway(t, "apply", "-f", repelled, "--server", socket("global", "g3")); !strings.Contains(out, "applied: spec v2 is in force") {
		t.Errorf("apply prints:\n%s", out)
	}
	eventually(t, patience, "the new spec steers", func() error { return w.steered(places("virginia")) })
	for verb, like := range map[string]string{
		"show":    `(?s)^plan \d+: in force at g\d for .*, made by g\d at .* \(\w+\)\nspec v2, term \d+, \d+ bytes.*REGION +WAIT +PRICE +SPREAD +CELLS.*\n  virginia `,
		"diff":    `^from plan \d+ \(made by g\d at .* \(\w+\)\) to plan \d+ `,
		"history": `(?m)^EPOCH +WHEN +REASON +COST +BEFORE +BYTES +SPEC +CELLS MOVED +SHARE +BY\n\d+ `,
	} {
		eventually(t, patience, "plan "+verb, func() error {
			out, _, err := spillway(t, "plan", verb, "--server", socket("global", "g1"))
			if err == nil && !regexp.MustCompile(like).MatchString(out) {
				err = fmt.Errorf("nothing like %s:\n%s", like, out)
			}
			return err // the plan of the new spec, which there is a diff to, may be yet to come
		})
	}
	if out := w.spillway(t, "apply", "-f", repelled); !strings.Contains(out, "nothing differs") {
		t.Errorf("applying the same again prints:\n%s", out)
	}
	if _, _, err := spillway(t, "apply", "-f", w.Spec(), "--based-on", "1"); err == nil || !strings.Contains(err.Error(), "is in force, not 1") {
		t.Errorf("applying on an old version says %v", err)
	}
}

// spillway runs a command that must succeed, against the first global node unless it names another.
func (w *world) spillway(t *testing.T, args ...string) string {
	t.Helper()
	if !strings.Contains(strings.Join(args, " "), "--server") {
		args = append(args, "--server", socket("global", "g1"))
	}
	out, errOut, err := spillway(t, args...)
	if err != nil {
		t.Fatalf("spillway %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// call is one streaming request.
func (w *world) call(ctx context.Context, t *testing.T, url string, tokens int) *http.Request {
	t.Helper()
	body := fmt.Sprintf(`{"model":"llama-3.1-8b","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"Where do I run?"}]}`, tokens)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.Key("acme")
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
			t.Errorf("the stream says %s", data)
		case strings.Contains(data, `"content":`):
			events++
		}
	}
	if !done || events < tokens {
		t.Errorf("the stream has %d events with content and done=%v, want %d", events, done, tokens)
	}
}

func (w *world) testStraight(t *testing.T) {
	const tokens = 12
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, g := range w.Of("regional") {
		resp, err := client.Do(w.call(t.Context(), t, fmt.Sprintf("http://%s/v1/chat/completions", g.Addr["http"]), tokens))
		if err != nil {
			t.Fatal(err)
		}
		checkStream(t, resp, g.Region, tokens)
	}
}

// testRedirect posts to the service's name at a global node and follows as most clients do: without the key.
func (w *world) testRedirect(t *testing.T) {
	const tokens = 12
	key, err := w.Key("acme")
	if err != nil || len(key) < 20 {
		t.Fatal(err)
	}
	for i, site := range fleet.Sites()[:3] {
		source, ok := w.Source(i)
		if !ok && i > 0 {
			return // a client can only be where this machine is
		}
		g := w.Of("global")[i%3].Addr["http"]
		hops := 0
		client := &http.Client{
			Transport: &http.Transport{DialContext: w.dialer(source, g)},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				hops++
				if r.URL.Host != via[0].URL.Host {
					r.Header.Del("Authorization")
				}
				if want := fmt.Sprintf("%s.chat.spillway.test:%d", site.Name, w.gateway(site.Name).Addr["http"].Port()); r.URL.Host != want || !r.URL.Query().Has("spw") {
					t.Errorf("redirected to %s, want a ticket for %s", r.URL.Redacted(), want)
				}
				if strings.Contains(r.URL.String(), key) {
					t.Error("the key stands in the URL")
				}
				return nil
			},
		}
		resp, err := client.Do(w.call(t.Context(), t, fmt.Sprintf("http://chat.spillway.test:%d/v1/chat/completions", g.Port()), tokens))
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

// dialer connects from source; the service's own name is the global node's, as with curl --resolve, and every other
// name is what the planet's name servers say.
func (w *world) dialer(source netip.Addr, global netip.AddrPort) func(context.Context, string, string) (net.Conn, error) {
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
		addrs, err := lookup(ctx, w.DNS()[0], host+".")
		if err != nil {
			return nil, err
		}
		return d.DialContext(ctx, network, net.JoinHostPort(addrs[0].String(), port))
	}
}

// testDisconnect leaves in the middle of a long answer: the GPU must be free again in 100 ms, by its own gauge.
func (w *world) testDisconnect(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("http://%s/v1/chat/completions", w.gateway("virginia").Addr["http"])
	inTime(t, 100*time.Millisecond, "freeing the sequence of a client that left", func() time.Duration {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp, err := client.Do(w.call(ctx, t, url, 4000))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		n, ok := w.worker(resp.Header.Get("X-Spillway-Route"))
		if !ok {
			t.Fatalf("the answer names no worker: %q", resp.Header.Get("X-Spillway-Route"))
		}
		if running, err := gauge(client, n); err != nil || running != 1 {
			t.Fatalf("the worker's gauge shows %v running (%v) while one is", running, err)
		}
		leave()
		return eventually(t, patience, "the worker's gauge is back at zero", func() error {
			if running, err := gauge(client, n); err != nil || running != 0 {
				return fmt.Errorf("%v running (%v)", running, err)
			}
			return nil
		})
	})
}

// gauge is how many sequences a worker runs, by its own metrics.
func gauge(client *http.Client, n fleet.Node) (float64, error) {
	page, err := fetch(client, fmt.Sprintf("http://%s/metrics", n.Addr["http"]))
	if err != nil {
		return 0, err
	}
	return sample(page, "vllm:num_requests_running{")
}

func fetch(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(b), err
}
