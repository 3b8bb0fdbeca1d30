package geo_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
)

// TestWatchReloadsChangedFiles replaces files under a running watch: valid ones come into force, an invalid one never
// does.
func TestWatchReloadsChangedFiles(t *testing.T) {
	dir := t.TempDir()
	db, over := filepath.Join(dir, "x.mmdb"), filepath.Join(dir, "over.csv")
	stamped := time.Now()
	put := func(path string, body []byte) { // by rename, as recommended, and with a distinct modification time
		t.Helper()
		if err := os.WriteFile(path+".new", body, 0o600); err != nil {
			t.Fatal(err)
		}
		stamped = stamped.Add(time.Second)
		if err := os.Chtimes(path+".new", stamped, stamped); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	london := geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("London", "GB", 51.5, -0.1, 20)))
	paris := geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("Paris", "FR", 48.9, 2.3, 20)))
	put(db, london)
	put(over, []byte("10.0.0.0/8, 1, 2, Home"))
	synctest.Test(t, func(t *testing.T) {
		l, err := geofiles.NewLiveAtlas(geo.Config{Databases: []string{db}, OverridesFile: over})
		if err != nil {
			t.Fatal(err)
		}
		var log watchLog
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			l.WatchFiles(ctx, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
			close(done)
		}()
		look := func(n int) { time.Sleep(time.Duration(n) * time.Second); synctest.Wait() }
		look(1)
		first := l.Atlas()
		look(5)
		if l.Atlas() != first {
			t.Error("files that did not change were read again")
		}
		put(db, paris)
		look(1)
		geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "London", geo.SourceDatabase, "81.2.69.0/24", 24) // it may still be incomplete
		look(2)
		geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "Paris", geo.SourceDatabase, "81.2.69.0/24", 24)

		for name, bad := range map[string]func(){
			"half a database": func() { put(db, paris[:len(paris)/2]) },
			"bad overrides":   func() { put(db, paris); put(over, []byte("10.0.0.0/8, here")) },
			"no file":         func() { put(over, []byte("10.0.0.0/8, 1, 2, Home")); _ = os.Remove(db) },
		} {
			log.clearText()
			bad()
			look(4)
			geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "Paris", geo.SourceDatabase, "81.2.69.0/24", 24)
			geo.CheckLocated(t, l.Atlas(), "10.1.1.1", "Home", geo.SourceOverride, "10.0.0.0/8", 8)
			if n := strings.Count(log.String(), "cannot be used"); n != 1 {
				t.Errorf("%s is reported %d times: %s", name, n, log.String())
			}
			put(db, paris)
			put(over, []byte("10.0.0.0/8, 1, 2, Home"))
			look(4)
		}
		put(db, london)
		look(4)
		geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "London", geo.SourceDatabase, "81.2.69.0/24", 24)
		cancel()
		<-done
	})
}

// watchLog is a log that is read while it is written.
type watchLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *watchLog) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *watchLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *watchLog) clearText() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

// TestWatchWithoutFilesReturns returns at once.
func TestWatchWithoutFilesReturns(t *testing.T) {
	l, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	l.WatchFiles(t.Context(), time.Hour, slog.New(slog.DiscardHandler))
}
