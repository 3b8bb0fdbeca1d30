package fault

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// TestClockErrorEndsByItself: the process's own clock shows the error from its start to its end, and the true time after.
func TestClockErrorEndsByItself(t *testing.T) {
	for name, c := range map[string]struct {
		error clockError
		want  time.Duration // ahead after 10 s
	}{
		"jump ahead":  {clockError{Jump: time.Hour}, time.Hour},
		"jump back":   {clockError{Jump: -time.Hour}, -time.Hour},
		"runs fast":   {clockError{Rate: 0.1}, time.Second},
		"runs slowly": {clockError{Rate: -0.5}, -5 * time.Second},
		"frozen":      {clockError{Frozen: true}, -10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "clock")
			clock := faultyClock{path: path}
			if ahead := time.Since(clock.readTime()); ahead != 0 {
				t.Errorf("%s: without a file it is off by %s", name, ahead)
			}
			e := c.error
			e.Since, e.Until = time.Now(), time.Now().Add(20*time.Second)
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := replaceFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if ahead := -time.Since(clock.readTime()); ahead != c.want {
				t.Errorf("%s: it is ahead by %s, want %s", name, ahead, c.want)
			}
			time.Sleep(10 * time.Second)
			if ahead := -time.Since(clock.readTime()); ahead != 0 {
				t.Errorf("%s: after its end it is ahead by %s", name, ahead)
			}
		})
	}
}

// TestProcessesWithoutTheVariableHaveTheSystemsClock: nothing is replaced in production.
func TestProcessesWithoutTheVariableHaveTheSystemsClock(t *testing.T) {
	t.Setenv(fleet.ClockEnv, "")
	if WallClock() != nil {
		t.Error("a process without the variable has a clock of its own")
	}
	t.Setenv(fleet.ClockEnv, filepath.Join(t.TempDir(), "clock"))
	if now := WallClock(); now == nil || time.Since(now()).Abs() > time.Second {
		t.Error("a process with the variable and without the file is off")
	}
}

// FuzzClockFile: no content of the file makes the process fail.
func FuzzClockFile(f *testing.F) {
	f.Add([]byte(`{"jump":3600000000000,"rate":1e300,"since":"2000-01-01T00:00:00Z","until":"2100-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "clock")
		if err := replaceFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		readClockError(path).shiftTime(time.Now())
	})
}
