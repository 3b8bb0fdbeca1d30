package geo_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

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
