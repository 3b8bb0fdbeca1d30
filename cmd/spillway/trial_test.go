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
)

// TestTrial puts specs on trial in one region of a planet under load. One that leaves that region without a worker is
// rolled back by its guard: other regions never had it, and no request outside failed. One that does no harm is promoted.
func TestTrial(t *testing.T) {
	w := wake(t, 1, 2)
	text, err := os.ReadFile(w.Spec())
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
	load := w.ask(t)
	eventually(t, patience, "each region has answered", func() error { return load.answered(20) })
	guard := "error_rate<10%,requests>=20"

	broken := put("broken.yaml", "pools:\n  - {name: nowhere, labels: {rack: none}, tenants: [acme]}\nrouting: {spill: false}\n")
	out := w.spillway(t, "apply", "-f", broken, "--stage", "frankfurt", "--for", "1h", "--guard", guard, "--reason", "CHG-7")
	for _, want := range []string{`(?m)^staged: spec v1 stays in force elsewhere$`, `(?m)^spec v2 is on trial in frankfurt for 1h0m0s, guard ` + regexp.QuoteMeta(guard) + `$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("apply prints nothing like %s:\n%s", want, out)
		}
	}
	eventually(t, patience, "the guard has rolled it back", func() error {
		if out := w.spillway(t, "get", "stage"); out != "nothing is on trial: spec v1 is in force everywhere\n" {
			return errors.New(out)
		}
		return nil
	})
	audit := w.spillway(t, "audit")
	if !regexp.MustCompile(`rollback .*frankfurt.*: error_rate is [\d.]+% of \d+ requests, limit 10%`).MatchString(audit) {
		t.Errorf("the audit does not say what was measured:\n%s", audit)
	}
	if load.failures("frankfurt") == 0 {
		t.Error("no request failed in the region on trial: the spec did no harm there")
	}
	since := load.failures("frankfurt")
	eventually(t, patience, "frankfurt serves again", func() error {
		before := load.served("frankfurt")
		time.Sleep(300 * time.Millisecond)
		if now := load.failures("frankfurt"); now != since || load.served("frankfurt") == before {
			since = now
			return fmt.Errorf("%d failures", now)
		}
		return nil
	})
	if n := w.log.grep(`msg="directive adopted".*spec_version=2`, 50); strings.Contains(n, "region=virginia") || strings.Contains(n, "region=tokyo") || !strings.Contains(n, "region=frankfurt") {
		t.Errorf("the spec on trial was adopted by:\n%s", n)
	}

	good := put("good.yaml", "routing: {spill_margin: 30ms}\n")
	if strings.Contains(string(text), "routing:") {
		t.Fatal("the planet's spec has a routing of its own")
	}
	w.spillway(t, "apply", "-f", good, "--stage", "frankfurt", "--for", "2s", "--guard", guard, "--reason", "CHG-8")
	eventually(t, patience, "it is promoted", func() error {
		if out := w.spillway(t, "get", "stage"); out != "nothing is on trial: spec v2 is in force everywhere\n" {
			return errors.New(out)
		}
		return nil
	})
	if audit := w.spillway(t, "audit"); !strings.Contains(audit, "passed without a breach") {
		t.Errorf("the audit does not tell of the promotion:\n%s", audit)
	}
	for _, region := range []string{"virginia", "tokyo"} {
		if n := load.failures(region); n > 0 {
			t.Errorf("%d requests failed in %s, where nothing was on trial: %s", n, region, load.why(region))
		}
	}
}

// askers are clients that ask each region's gateway over and over.
type askers struct {
	mu         sync.Mutex
	good, bad  map[string]int
	complaints map[string]string
}

func (w *world) ask(t *testing.T) *askers {
	l := &askers{good: map[string]int{}, bad: map[string]int{}, complaints: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	var all sync.WaitGroup
	for _, g := range w.Of("regional") {
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					resp, err := client.Do(w.call(ctx, t, fmt.Sprintf("http://%s/v1/chat/completions", g.Addr["http"]), 1))
					var body []byte
					if err == nil {
						body, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if ctx.Err() == nil {
						l.note(g.Region, resp, body, err)
					}
					time.Sleep(20 * time.Millisecond)
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

func (l *askers) note(region string, resp *http.Response, body []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && resp.StatusCode == http.StatusOK {
		l.good[region]++
		return
	}
	l.bad[region]++
	l.complaints[region] = fmt.Sprintf("%v %.200s", err, body)
}

func (l *askers) answered(n int) error {
	for _, region := range []string{"virginia", "frankfurt", "tokyo"} {
		if got := l.served(region); got < n {
			return fmt.Errorf("%s has answered %d: %s", region, got, l.why(region))
		}
	}
	return nil
}

func (l *askers) served(region string) int { l.mu.Lock(); defer l.mu.Unlock(); return l.good[region] }

func (l *askers) failures(region string) int { l.mu.Lock(); defer l.mu.Unlock(); return l.bad[region] }

func (l *askers) why(region string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.complaints[region]
}
