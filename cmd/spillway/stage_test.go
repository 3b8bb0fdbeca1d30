package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestStagedSpecIsRolledBackOrPromoted stages specs in one region of a fleet under load. A spec that leaves this region without
// a worker is rolled back by its guard: other regions do not apply it, and no request there fails. A harmless spec is promoted.
func TestStagedSpecIsRolledBackOrPromoted(t *testing.T) {
	w := startInProcessFleet(t, 1, 2)
	text, err := os.ReadFile(w.SpecPath())
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, more string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, append(text[:len(text):len(text)], more...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	load := w.startRegionClients(t)
	waitForSuccess(t, testTimeout, "each region has answered", func() error { return load.checkAnswered(20) })
	guard := "error_rate<10%,requests>=20"

	broken := put("broken.yaml", "pools:\n  - {name: nowhere, labels: {rack: none}, tenants: [acme]}\nrouting: {spill: false}\n")
	out := w.mustRunSpillway(t, "apply", "-f", broken, "--stage", "frankfurt", "--for", "1h", "--guard", guard, "--reason", "CHG-7")
	for _, want := range []string{`(?m)^staged: spec v1 stays in force elsewhere$`, `(?m)^spec v2 is staged in frankfurt for 1h0m0s, guard ` + regexp.QuoteMeta(guard) + `$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("apply prints nothing like %s:\n%s", want, out)
		}
	}
	waitForSuccess(t, testTimeout, "the guard has rolled it back", func() error {
		if out := w.mustRunSpillway(t, "get", "stage"); out != "no spec is staged: spec v1 is in force everywhere\n" {
			return errors.New(out)
		}
		return nil
	})
	audit := w.mustRunSpillway(t, "audit")
	if !regexp.MustCompile(`rollback .*frankfurt.*: error_rate is [\d.]+% of \d+ requests, limit 10%`).MatchString(audit) {
		t.Errorf("the audit log lacks the measurements:\n%s", audit)
	}
	if load.countFailures("frankfurt") == 0 {
		t.Error("no request failed in the staged region: the spec had no effect there")
	}
	const inARow = 20 // about 300 ms of the load
	failed, served := load.countFailures("frankfurt"), load.countServed("frankfurt")
	waitForSuccess(t, testTimeout, "frankfurt serves again", func() error {
		if now := load.countFailures("frankfurt"); now != failed {
			failed, served = now, load.countServed("frankfurt")
		}
		if n := load.countServed("frankfurt") - served; n < inARow {
			return fmt.Errorf("%d failures, then %d served, want %d", failed, n, inARow)
		}
		return nil
	})
	if n := w.logs.grepLines(`msg="directive applied".*spec_version=2`, 50); strings.Contains(n, "region=virginia") || strings.Contains(n, "region=tokyo") || !strings.Contains(n, "region=frankfurt") {
		t.Errorf("the staged spec was applied by:\n%s", n)
	}

	good := put("good.yaml", "routing: {spill_margin: 30ms}\n")
	if strings.Contains(string(text), "routing:") {
		t.Fatal("the spec of the fleet already has a routing section")
	}
	w.mustRunSpillway(t, "apply", "-f", good, "--stage", "frankfurt", "--for", "2s", "--guard", guard, "--reason", "CHG-8")
	waitForSuccess(t, testTimeout, "it is promoted", func() error {
		if out := w.mustRunSpillway(t, "get", "stage"); out != "no spec is staged: spec v2 is in force everywhere\n" {
			return errors.New(out)
		}
		return nil
	})
	if audit := w.mustRunSpillway(t, "audit"); !strings.Contains(audit, "passed without a breach") {
		t.Errorf("the audit log lacks the promotion:\n%s", audit)
	}
	for _, region := range []string{"virginia", "tokyo"} {
		if n := load.countFailures(region); n > 0 {
			t.Errorf("%d requests failed in %s, where no spec was staged: %s", n, region, load.lastFailure(region))
		}
	}
}

// regionClients are clients that send requests to each region's gateway continuously.
type regionClients struct {
	mu                      sync.Mutex
	okCounts, failureCounts map[string]int
	lastFailures            map[string]string
}

func (w *inProcessFleet) startRegionClients(t *testing.T) *regionClients {
	l := &regionClients{okCounts: map[string]int{}, failureCounts: map[string]int{}, lastFailures: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	var all sync.WaitGroup
	for _, g := range w.NodesByRole("regional") {
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					resp, err := client.Do(w.newStreamRequest(ctx, t, fmt.Sprintf("http://%s/v1/chat/completions", g.Addr["http"]), 1))
					var body []byte
					if err == nil {
						body, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if ctx.Err() == nil {
						l.recordAnswer(g.Region, resp, body, err)
					}
					testkit.PauseUnlessDone(ctx, 20*time.Millisecond)
				}
			})
		}
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		client.CloseIdleConnections()
	})
	return l
}

func (l *regionClients) recordAnswer(region string, resp *http.Response, body []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && resp.StatusCode == http.StatusOK {
		l.okCounts[region]++
		return
	}
	l.failureCounts[region]++
	l.lastFailures[region] = fmt.Sprintf("%v %.200s", err, body)
}

func (l *regionClients) checkAnswered(n int) error {
	for _, region := range []string{"virginia", "frankfurt", "tokyo"} {
		if got := l.countServed(region); got < n {
			return fmt.Errorf("%s has answered %d: %s", region, got, l.lastFailure(region))
		}
	}
	return nil
}

func (l *regionClients) countServed(region string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.okCounts[region]
}

func (l *regionClients) countFailures(region string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failureCounts[region]
}

func (l *regionClients) lastFailure(region string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastFailures[region]
}
