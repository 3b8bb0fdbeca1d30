package spec_test

import (
	"os"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestBlockedWindows tests weekdays, dates and the edges of windows, and that they survive encoding.
func TestBlockedWindows(t *testing.T) {
	text, err := os.ReadFile("testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Decode("s.yaml", append(text, `
safety:
  min_regions: 1
  min_capacity_share: 0.5
  blocked_windows:
    - {name: office, days: [mon, fri], from: "08:00", to: "18:00"}
    - {name: feast, days: ["2026-12-24"]}
    - {name: night, from: "23:30", to: "24:00"}
`...))
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.Decode("again.yaml", spec.Encode(s))
	if err != nil {
		t.Fatal(err)
	}
	berlin := time.FixedZone("CET", 3600)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC), "office"}, // a Monday
		{time.Date(2026, 11, 23, 7, 59, 59, 0, time.UTC), ""},
		{time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC), ""},
		{time.Date(2026, 11, 23, 18, 30, 0, 0, berlin), "office"},
		{time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), ""},
		{time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), "feast"},
		{time.Date(2026, 12, 25, 0, 30, 0, 0, berlin), "feast"},
		{time.Date(2026, 11, 24, 23, 59, 59, 0, time.UTC), "night"},
	} {
		got := ""
		if w := again.Safety.FindBlockedWindow(c.at); w != nil {
			got = w.Name
		}
		if got != c.want {
			t.Errorf("at %s the window is %q, want %q", c.at, got, c.want)
		}
	}
	if again.Safety.MinRegions != 1 || again.Safety.MinCapacityPPM() != 500_000 {
		t.Errorf("%+v", again.Safety)
	}
}
