package liveness

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestReachesRegionComparesWholeNames(t *testing.T) {
	report := PeerReport{Reachable: []string{"eu-west/g1", "eu/g1", "us-east/g2"}}
	for region, want := range map[string]bool{"eu": true, "eu-west": true, "us-east": true, "us": false, "e": false, "": false, "zz": false, "eu/g1": false} {
		if got := report.reachesRegion(region); got != want {
			t.Errorf("reachesRegion(%q) is %v, want %v", region, got, want)
		}
	}
}

// TestMajorityDeclaresARegionDead tests the two rules: one fresh report that disagrees keeps a region in the answers,
// and only a majority declares it dead.
func TestMajorityDeclaresARegionDead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.IntRange(1, 7).Draw(t, "voters")
		q := Votes{Self: "0", Reports: map[string]PeerReport{}}
		for i := range voters {
			q.Voters = append(q.Voters, fmt.Sprint(i))
		}
		reaching, lost := 0, 1 // this node has lost it
		for i := range rapid.IntRange(0, voters-1).Draw(t, "present") {
			x := PeerReport{Settled: rapid.Bool().Draw(t, "settled")}
			if rapid.Bool().Draw(t, "reaches") {
				x.Reachable = []string{"r/g"}
				reaching++
			} else if x.Settled {
				lost++
			}
			q.Reports[fmt.Sprint(i+1)] = x
		}
		q.Reports["edge"] = PeerReport{Settled: true} // without a vote: its report does not count
		if got := len(q.ReportersOf("r")); got != reaching {
			t.Fatalf("%d nodes reach it, want %d", got, reaching)
		}
		if got := q.IsDead("r"); got != (lost > voters/2) {
			t.Fatalf("dead is %v for %d of %d voters", got, lost, voters)
		}
	})
}

func TestPeerReportsExpire(t *testing.T) {
	var b PeerReports
	now := time.Unix(1_800_000_000, 0)
	body, _ := json.Marshal(PeerReport{Settled: true, Reachable: []string{"b/g", "a/g"}})
	changes := 0
	for _, x := range []struct {
		from string
		body []byte
	}{{"g2", body}, {"g2", body}, {"g3", []byte("malformed")}} {
		if b.PutReport(x.from, x.body, now) {
			changes++
		}
	}
	if changes != 1 || len(b.FreshReports(now)) != 1 || !slices.IsSorted(b.FreshReports(now)["g2"].Reachable) {
		t.Fatalf("%d changes, holds %v", changes, b.FreshReports(now))
	}
	if got := b.FreshReports(now.Add(ReportLifetime + time.Second)); len(got) != 0 {
		t.Fatalf("expired reports count: %v", got)
	}
}

func FuzzDecodePeerReport(f *testing.F) {
	f.Add([]byte(`{"settled":true,"heard":["a/g1","b/g2"]}`))
	f.Add([]byte(`{"heard":["b","a","a/"]}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"settled":true,"heard":[],"clock_ms":1800000000000}`))
	f.Add([]byte(`{"heard":[],"clock_ms":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := decodePeerReport(body)
		if err == nil && !slices.IsSorted(x.Reachable) {
			t.Fatal("report out of order")
		}
		if d, ok := computeClockOffset(x.ClockMS, time.UnixMilli(1_800_000_000_000)); d.Abs() > MaxClockOffset || ok != (x.ClockMS > 0) {
			t.Fatalf("a clock at %d is off by %s, %v", x.ClockMS, d, ok)
		}
		for _, name := range x.Reachable {
			if region, gw, ok := strings.Cut(name, "/"); ok && gw != "" && !x.reachesRegion(region) {
				t.Fatalf("%q is listed and region %q not reached", name, region)
			}
		}
	})
}

// TestPeerClockOffsetIsBounded: a peer may send any number.
func TestPeerClockOffsetIsBounded(t *testing.T) {
	own := time.UnixMilli(1_800_000_000_000)
	for clock, want := range map[int64]time.Duration{
		1_800_000_000_000: 0, 1_800_000_003_000: 3 * time.Second, 1_799_999_997_000: -3 * time.Second, math.MaxInt64: MaxClockOffset, 1: -1_799_999_999_999 * time.Millisecond,
	} {
		if got, ok := computeClockOffset(clock, own); !ok || got != want {
			t.Errorf("a clock at %d is off by %s, %v; want %s", clock, got, ok, want)
		}
	}
	if got, _ := computeClockOffset(1, time.UnixMilli(math.MaxInt64)); got != -MaxClockOffset {
		t.Errorf("far behind: %s", got)
	}
	for _, clock := range []int64{0, -1, math.MinInt64} {
		if got, ok := computeClockOffset(clock, own); ok {
			t.Errorf("a clock at %d is off by %s", clock, got)
		}
	}
}
