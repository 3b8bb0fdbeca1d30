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

// TestBadDatabaseNeverReplacesAGoodOne writes each invalid file over a valid one that is in use.
func TestBadDatabaseNeverReplacesAGoodOne(t *testing.T) {
	path := geo.SaveDatabase(t, geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("London", "GB", 51.5, -0.1, 20))))
	l, err := geofiles.NewLiveAtlas(geo.Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	good := l.Atlas()
	for name, body := range geo.BadDatabases(t) {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Reload(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names the file", name, err)
		}
		if l.Atlas() != good {
			t.Fatalf("%s has replaced a good one", name)
		}
	}
	geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "London", geo.SourceDatabase, "81.2.69.0/24", 24)
}

// TestCorruptBytesNeverReplaceAGoodDatabase corrupts single bytes: a reload either fails and changes nothing, or
// gives an Atlas with locations.
func TestCorruptBytesNeverReplaceAGoodDatabase(t *testing.T) {
	body := geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("London", "GB", 51.5, -0.1, 20)))
	path := geo.SaveDatabase(t, body)
	l, err := geofiles.NewLiveAtlas(geo.Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := 0; i < len(body); i += max(len(body)/150, 1) {
		spoiled := bytes.Clone(body)
		spoiled[i] ^= 0xff
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		before := l.Atlas()
		if err := l.Reload(); err != nil {
			refused++
			if l.Atlas() != before {
				t.Fatalf("byte %d: an error, and a new atlas in force", i)
			}
		}
		if len(l.Atlas().Cells()) == 0 {
			t.Fatalf("byte %d: an atlas without locations is in force", i)
		}
	}
	if refused == 0 {
		t.Error("no corrupt file was refused")
	}
	t.Logf("%d refused", refused)
}

func TestFailedReloadKeepsTheAtlas(t *testing.T) {
	good := geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("London", "GB", 51.5, -0.1, 20)))
	path := geo.SaveDatabase(t, good)
	l, err := geofiles.NewLiveAtlas(geo.Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "London", geo.SourceDatabase, "81.2.69.0/24", 24)
	replace := func(body []byte) error {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		return l.Reload()
	}
	if err := replace(good[:len(good)/2]); err == nil {
		t.Error("half a database was accepted")
	}
	geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "London", geo.SourceDatabase, "81.2.69.0/24", 24)
	if err := replace(geo.WriteDatabase(t, 6, geo.NewNetwork("81.2.69.0/24", geo.CityData("Paris", "FR", 48.9, 2.3, 20)))); err != nil {
		t.Fatal(err)
	}
	geo.CheckLocated(t, l.Atlas(), "81.2.69.1", "Paris", geo.SourceDatabase, "81.2.69.0/24", 24)
	if _, err := geofiles.NewLiveAtlas(geo.Config{Databases: []string{path + ".none"}}); err == nil {
		t.Error("a missing database was opened")
	}
}

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
