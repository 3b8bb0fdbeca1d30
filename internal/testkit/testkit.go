// Package testkit holds what tests of several packages share: waiting for a condition, a log that can be read while it
// is written, archives of texts with a mistake and the message that each produces, and the switch for long runs.
package testkit

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// WaitBound bounds every wait for a condition. It is far above what any condition takes on a busy machine, so only a
// hang reaches it. Tests of durations use package timed or virtual time instead.
const WaitBound = time.Minute

// pollInterval is the time between two looks at a condition.
const pollInterval = 2 * time.Millisecond

// Eventually waits for a condition that other goroutines or processes bring about, and returns how long that took. The
// test fails when the condition does not hold within WaitBound; what is the condition in words.
func Eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	return EventuallyWithin(t, WaitBound, what, ok)
}

// EventuallyWithin is Eventually with a bound of its own, for conditions that take minutes.
func EventuallyWithin(t testing.TB, bound time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > bound {
			t.Fatalf("not within %s: %s", bound, what)
		}
		time.Sleep(pollInterval)
	}
	return time.Since(began)
}

// EventuallySucceeds waits until try returns nil, and returns how long that took. The test fails with the last error when
// try does not succeed within bound.
func EventuallySucceeds(t testing.TB, bound time.Duration, what string, try func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := try()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > bound {
			t.Fatalf("not within %s: %s: %v", bound, what, err)
		}
		time.Sleep(pollInterval)
	}
}

// HoldsFor checks that a condition holds for a whole period. It is for what must not happen: a condition that other
// goroutines could end. The test fails as soon as the condition does not hold.
func HoldsFor(t testing.TB, period time.Duration, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(pollInterval) {
		if !ok() {
			t.Fatalf("after %s of %s, no longer: %s", time.Since(began).Round(time.Millisecond), period, what)
		}
		if time.Since(began) >= period {
			return
		}
	}
}

// PauseUnlessDone waits for d, or until the context is done. It paces a loop that makes load, which waits for no
// condition.
func PauseUnlessDone(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// LogBuffer is a writer for a logger whose text can be read while it is written. The zero value is ready for use.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p and never fails.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything written so far.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Lines returns the lines that contain all of the words.
func (b *LogBuffer) Lines(words ...string) (found []string) {
	for line := range strings.Lines(b.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// failureLogLines is how many of the last log lines a failed test prints.
const failureLogLines = 80

// PrintIfFailed prints the last lines if the test has failed.
func (b *LogBuffer) PrintIfFailed(t testing.TB) {
	if !t.Failed() {
		return
	}
	lines := strings.SplitAfter(b.String(), "\n")
	t.Logf("the last log lines:\n%s", strings.Join(lines[max(0, len(lines)-failureLogLines):], ""))
}

// NewFailureLog returns a logger of every level whose last lines are printed if the test fails. A failure that occurs
// once in many runs is then explained by the run in which it occurred.
func NewFailureLog(t testing.TB) *slog.Logger {
	t.Helper()
	var log LogBuffer
	t.Cleanup(func() { log.PrintIfFailed(t) })
	return slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// TracesDir returns the folder with the public traces, which are not part of the repository, and skips the test without
// one. `spillway traces` lists the files.
func TracesDir(t testing.TB) string {
	t.Helper()
	return dirOf(t, "SPILLWAY_TRACES", "public traces")
}

// PerfDir returns the folder with the performance model of the simulated worker, worker-model.json, and skips the test
// without one.
func PerfDir(t testing.TB) string {
	t.Helper()
	return dirOf(t, "SPILLWAY_PERF", "performance model of the simulated worker (worker-model.json)")
}

func dirOf(t testing.TB, variable, what string) string {
	t.Helper()
	dir := os.Getenv(variable)
	switch {
	case dir == "":
		t.Skipf("set %s to the absolute path of the folder with the %s to run this test", variable, what)
	case !filepath.IsAbs(dir): // go test runs each test in the folder of its package
		t.Fatalf("%s=%s is not an absolute path", variable, dir)
	}
	return dir
}

// soakSwitch turns long runs on.
const soakSwitch = "SPILLWAY_SOAK"

// SoakOnly skips a test that takes tens of seconds of CPU and whose property a shorter test of `make test` also holds.
// `make soak` runs it. covered names that shorter test.
func SoakOnly(t testing.TB, covered string) {
	t.Helper()
	if os.Getenv(soakSwitch) == "" {
		t.Skipf("a long run: make soak; %s holds the property for a smaller load", covered)
	}
}
