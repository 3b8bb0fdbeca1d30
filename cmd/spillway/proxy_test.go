package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

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
		time.Sleep(100 * time.Millisecond)
		for _, secret := range []string{key, "Where do I run", "spw="} {
			if found := w.logs.grepLines(regexp.QuoteMeta(secret), 3); found != "" {
				t.Errorf("the log contains %q:\n%s", secret, found)
			}
		}
	})
}
