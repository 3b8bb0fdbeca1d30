package consensus

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDrainExpiryUsesTheEntryTime checks that no clock decides anything while the log is applied. At any local time,
// and after any jump of the leader's clock between two entries, a drain ends at the entry that ends it, and no entry
// brings it back. Raft itself uses the monotonic clock, which clock steps do not change.
func TestDrainExpiryUsesTheEntryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, index := &State{}, uint64(0)
		do := func(c command) {
			data, err := encodeCommand(c)
			if err != nil {
				t.Fatal(err)
			}
			index++
			s, _ = applyEntry(s, logEntry{index: index, term: 1, data: data}, stateChecks{})
		}
		until := map[string]time.Time{}
		for range rapid.IntRange(1, 30).Draw(t, "entries") {
			clock := noon.Add(time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, "clock, s")) * time.Second) // forward and back
			if rapid.Bool().Draw(t, "drain") {
				path := rapid.SampledFrom([]string{"eu", "us", "ap"}).Draw(t, "path")
				end := time.Time{}
				if rapid.Bool().Draw(t, "ends") {
					end = clock.Add(time.Duration(rapid.Int64Range(1, 1e5).Draw(t, "for, s")) * time.Second)
				}
				do(command{Kind: kindPutDrain, Path: path, Until: end, At: clock})
				until[path] = end
				continue
			}
			do(command{Kind: kindExpireDrains, At: clock})
			for path, end := range until {
				if !end.IsZero() && !clock.Before(end) {
					delete(until, path)
				}
			}
		}
		if len(s.Drains) != len(until) {
			t.Fatalf("%d drains are in force, want %d", len(s.Drains), len(until))
		}
		for _, d := range s.Drains {
			if end, ok := until[d.Path]; !ok || !end.Equal(d.Until) {
				t.Fatalf("drain of %s ends %s, want %s", d.Path, d.Until, end)
			}
		}
	})
}
