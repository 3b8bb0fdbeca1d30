package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgressBar: the bar is full at the end, and the remaining time is extrapolated.
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
		got := formatProgressBar("E5", c.done, c.elapsed)
		if !strings.Contains(got, "["+c.bar+"]") || !strings.HasSuffix(got, ", "+c.left+" left") {
			t.Errorf("%v after %v: %q", c.done, c.elapsed, got)
		}
	}
}

// TestProgressWithoutATerminal: without a terminal no bar is printed, and nothing for a short run.
func TestProgressWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	report, end := startProgress(&b, "E5")
	for i := range 101 {
		report(float64(i) / 100)
	}
	end()
	if b.Len() != 0 {
		t.Errorf("a short run wrote %q", b.String())
	}
	p := &runProgress{w: &b, label: "E5", startedAt: time.Now().Add(-time.Hour)}
	for i := range 101 {
		p.reportProgress(float64(i) / 100)
	}
	p.clearBar()
	if n := strings.Count(b.String(), "\n"); n != 3 || strings.ContainsAny(b.String(), "\r\033") {
		t.Errorf("a long run wrote %d lines: %q", n, b.String())
	}
}
