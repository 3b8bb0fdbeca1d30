package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recordingTB records whether a test failed.
type recordingTB struct {
	testing.TB
	failure string
}

func (r *recordingTB) Helper() {}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

func TestEventuallyReturnsWhenTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		took := Eventually(t, "three seconds pass", func() bool { return time.Since(began) >= 3*time.Second })
		if took < 3*time.Second || took > 3*time.Second+pollInterval {
			t.Errorf("took %s, want 3s", took)
		}
	})
}

func TestEventuallyFailsAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, r := time.Now(), &recordingTB{TB: t}
		func() {
			defer func() { _ = recover() }()
			Eventually(r, "the impossible", func() bool { return false })
		}()
		if r.failure != "not within 1m0s: the impossible" {
			t.Errorf("failure is %q", r.failure)
		}
		if took := time.Since(began); took < WaitBound || took > WaitBound+time.Second {
			t.Errorf("failed after %s, want %s", took, WaitBound)
		}
	})
}

func TestEventuallySucceedsReportsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		EventuallySucceeds(t, time.Minute, "the third try succeeds", func() error {
			if tries++; tries < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		r := &recordingTB{TB: t}
		func() {
			defer func() { _ = recover() }()
			EventuallySucceeds(r, time.Second, "it succeeds", func() error { return errors.New("disk full") })
		}()
		if !strings.Contains(r.failure, "it succeeds: disk full") {
			t.Errorf("the failure is %q", r.failure)
		}
	})
}

func TestHoldsForChecksTheWholePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		HoldsFor(t, time.Second, "it holds", func() bool { return true })
		if took := time.Since(began); took < time.Second || took > time.Second+pollInterval {
			t.Errorf("checked for %s, want 1s", took)
		}
		r := &recordingTB{TB: t}
		began = time.Now()
		func() {
			defer func() { _ = recover() }()
			HoldsFor(r, time.Minute, "it holds", func() bool { return time.Since(began) < 30*time.Second })
		}()
		if !strings.Contains(r.failure, "no longer: it holds") {
			t.Errorf("the failure is %q", r.failure)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		PauseUnlessDone(t.Context(), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		PauseUnlessDone(ctx, time.Hour)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("both pauses took %s, want 2s", took)
		}
	})
}

func TestLogBufferReturnsLinesWithAllWords(t *testing.T) {
	var b LogBuffer
	_, _ = fmt.Fprint(&b, "level=WARN file=a\nlevel=INFO file=a\nlevel=WARN file=b\n")
	if got := b.Lines("WARN", "file=a"); len(got) != 1 || got[0] != "level=WARN file=a\n" {
		t.Errorf("lines are %q", got)
	}
}

func TestSoakOnlyFollowsTheSwitch(t *testing.T) {
	for _, c := range []struct {
		value string
		skips bool
	}{{"", true}, {"1", false}} {
		t.Run("value "+c.value, func(t *testing.T) {
			t.Setenv("SPILLWAY_SOAK", c.value)
			var inner testing.TB
			t.Run("inner", func(t *testing.T) {
				inner = t
				SoakOnly(t, "TestOther")
			})
			if inner.Skipped() != c.skips {
				t.Errorf("skipped: %v, want %v", inner.Skipped(), c.skips)
			}
		})
	}
}

// TestMissingFolderSkipsAndNamesTheVariable: without its variable a test is skipped, not failed.
func TestMissingFolderSkipsAndNamesTheVariable(t *testing.T) {
	for variable, dirOf := range map[string]func(testing.TB) string{"SPILLWAY_TRACES": TracesDir, "SPILLWAY_PERF": PerfDir} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, t.TempDir())
			if got := dirOf(t); got != os.Getenv(variable) {
				t.Errorf("%s, want %s", got, os.Getenv(variable))
			}
			t.Setenv(variable, "")
			skipped := false
			t.Run("unset", func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				dirOf(t)
			})
			if !skipped {
				t.Error("the test ran without a folder")
			}
		})
	}
}
