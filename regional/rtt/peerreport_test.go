package rtt

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestCachedPeerReportMatchesRebuiltReport: the cached report equals a rebuilt one, for any measurements and any
// course of time.
func TestCachedPeerReportMatchesRebuiltReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, rebuilt := NewPeerTable(), NewPeerTable()
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{
				-time.Second, 0, 1, time.Second, 59 * time.Second, time.Minute, 90 * time.Minute, 5*time.Hour + 59*time.Minute,
			}).Draw(t, "later"))
			if rapid.Bool().Draw(t, "measured") {
				region := rapid.SampledFrom([]string{"fra", "ams", "iad"}).Draw(t, "region")
				rtt := time.Duration(rapid.IntRange(1, 300).Draw(t, "rtt")) * time.Millisecond
				kept.AddSample(region, rtt, now)
				rebuilt.AddSample(region, rtt, now)
			}
			cells := []capacity.CellRTT{{Cell: "a", Samples: 1}, {Cell: "z", Samples: 2}}[:2*rapid.IntRange(0, 1).Draw(t, "cells")]
			rebuilt.cachedReport = nil
			got, want := kept.AppendReport(cells, now), rebuilt.AppendReport(cells, now)
			if !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if !slices.IsSortedFunc(got, func(a, b capacity.CellRTT) int { return strings.Compare(a.Cell, b.Cell) }) {
				t.Fatalf("out of order: %v", got)
			}
		}
	})
}
