package soak

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestThousandSeedsHold: no random faults break an invariant.
func TestThousandSeedsHold(t *testing.T) {
	seeds := 1000
	if testing.Short() || testkit.RaceDetector {
		seeds = 10
	}
	begun := time.Now()
	totals, err := RunSeeds(t.Context(), 1, seeds, runtime.GOMAXPROCS(0), func(r SeedResult) bool {
		for _, b := range r.Broken {
			t.Errorf("seed %d: %s\nreplay: %s", r.Seed, b, ReplayCommand(r.Seed))
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d seeds in %s: %d facts compared, %d of %d requests harmed", totals.Seeds, time.Since(begun).Round(time.Millisecond), totals.Checked, totals.Harmed, totals.Requests)
	if totals.Seeds != seeds {
		t.Errorf("%d of %d seeds ran", totals.Seeds, seeds)
	}
}

// TestRandomDrillsAreFiles: a random drill is a valid file and reads back as itself, so that its log can be replayed; and all kinds
// of steps occur.
func TestRandomDrillsAreFiles(t *testing.T) {
	kinds := map[string]bool{}
	for seed := range uint64(2000) {
		f := MakeDrill(seed)
		text := drill.FormatFile(f)
		got, err := drill.ParseFile("random", text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if again := drill.FormatFile(got); !bytes.Equal(text, again) {
			t.Fatalf("seed %d reads back differently:\n%s\n%s", seed, text, again)
		}
		if !reflect.DeepEqual(got.Load, f.Load) || got.Fleet != f.Fleet {
			t.Fatalf("seed %d: load %+v reads back as %+v, fleet %+v as %+v", seed, f.Load, got.Load, f.Fleet, got.Fleet)
		}
		for i := range f.Steps {
			kinds[string(f.Steps[i].Kind)] = true
		}
	}
	if len(kinds) < 18 {
		t.Errorf("%d kinds of steps occur, want at least 18: %v", len(kinds), kinds)
	}
}
