package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgressBar: the bar is full at the end, and the time left follows from what is done.
func TestProgressBar(t *testing.T) {
	for _, c := range []struct {
		done    float64
		elapsed time.Duration
		bar     string
		left    string
	}{
		{0, time.Second, strings.Repeat(" ", 30), "?"},
		{0.5, 10 * time.Second, strings.Repeat("=", 15) + strings.Repeat(" ", 15), "10s"},
		{0.25, time.Minute, strings.Repeat("=", 7) + strings.Repeat(" ", 23), "3m0s"},
		{1, time.Minute, strings.Repeat("=", 30), "0s"},
	} {
		got := progressBar("E5", c.done, c.elapsed)
		if !strings.Contains(got, "["+c.bar+"]") || !strings.HasSuffix(got, ", "+c.left+" left") {
			t.Errorf("%v after %v: %q", c.done, c.elapsed, got)
		}
	}
}

// TestProgressInALog: what is no terminal gets no bar, and nothing at all of a short run.
func TestProgressInALog(t *testing.T) {
	var b bytes.Buffer
	report, end := showRun(&b, "E5")
	for i := range 101 {
		report(float64(i) / 100)
	}
	end()
	if b.Len() != 0 {
		t.Errorf("a short run wrote %q", b.String())
	}
	p := &runProgress{w: &b, what: "E5", began: time.Now().Add(-time.Hour)}
	for i := range 101 {
		p.report(float64(i) / 100)
	}
	p.end()
	if n := strings.Count(b.String(), "\n"); n != 3 || strings.ContainsAny(b.String(), "\r\033") {
		t.Errorf("a long run wrote %d lines: %q", n, b.String())
	}
}
