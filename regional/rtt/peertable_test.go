package rtt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

func TestPeerRTTsAreReportedWithCells(t *testing.T) {
	p, now := NewPeerTable(), time.Now()
	for i := range 5 {
		p.AddSample("ams", time.Duration(10+i*100*(i/4))*time.Millisecond, now.Add(time.Duration(i)*time.Second))
	}
	p.AddSample("", time.Millisecond, now)
	p.AddSample("iad", 0, now)
	p.AddSample("iad", geo.MaxRTT+1, now)
	cells := []capacity.CellRTT{{Cell: "n40w075", Samples: 3, TotalMicros: 3}, {Cell: "s10e010", Samples: 3, TotalMicros: 3}}
	got := p.AppendReport(cells, now.Add(70*time.Second))
	want := capacity.CellRTT{Cell: "region/ams", Samples: 5, TotalMicros: 50_000, AgeSec: 60}
	if len(got) != 3 || got[1] != want || len(cells) != 2 {
		t.Fatalf("reported %+v, want %+v in the middle", got, want)
	}
	if r, ok := got[1].PeerRegion(); !ok || r != "ams" {
		t.Errorf("it leads to %q", r)
	}
	if _, ok := got[0].PeerRegion(); ok || geo.ParseCellName(got[1].Cell) != geo.NoCell {
		t.Error("cells and regions are taken for each other")
	}
	s := capacity.Summary{Path: capacity.Path{Region: "fra", Instance: "g"}, RTTs: got}
	if _, err := capacity.EncodeSummary(&s); err != nil {
		t.Error(err)
	}
	if got := p.AppendReport(cells, now.Add(geo.DefaultMaxMeasurementAge+time.Minute)); len(got) != 2 {
		t.Errorf("of six hours ago there is %+v", got)
	}
	for i := range 2 * maxPeers {
		p.AddSample(fmt.Sprint(i), time.Millisecond, now)
	}
	if len(p.regions) > maxPeers {
		t.Errorf("%d regions are held", len(p.regions))
	}
}

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
