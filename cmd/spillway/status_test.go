package main

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestStatusCheckListsProblems: status --check fails for each region that is unreachable or has no ready worker, unless it is drained.
func TestStatusCheckListsProblems(t *testing.T) {
	ready, none := []admin.ModelStatus{{Ready: 1}}, []admin.ModelStatus{{Ready: 0}}
	for name, c := range map[string]struct {
		regions []admin.RegionStatus
		want    []string
	}{
		"all well":         {[]admin.RegionStatus{{Name: "fra", Models: ready}, {Name: "iad", Models: ready}}, nil},
		"one unreachable":  {[]admin.RegionStatus{{Name: "fra", Models: ready}, {Name: "iad", State: admin.StateUnreachable, Models: ready}}, []string{"region iad is unreachable"}},
		"never seen":       {[]admin.RegionStatus{{Name: "fra", Models: ready}, {Name: "iad", State: admin.StateUnknown}}, []string{"region iad is unreachable"}},
		"no ready worker":  {[]admin.RegionStatus{{Name: "fra", Models: none}, {Name: "iad", Models: ready}}, []string{"region fra has no ready worker"}},
		"one drained":      {[]admin.RegionStatus{{Name: "fra", Models: none, Draining: true}, {Name: "iad", Models: ready}}, nil},
		"only drained":     {[]admin.RegionStatus{{Name: "fra", Models: none, Draining: true}}, []string{"no worker is ready"}},
		"nothing declared": {nil, []string{"no worker is ready"}},
	} {
		if got := listProblems(&admin.Status{Regions: c.regions}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestStatusShowsSpecInForce: the versions of spec and plan, or the spec file of a standalone zone.
func TestStatusShowsSpecInForce(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, s := range map[string]admin.Status{
		"spec v7  plan 9, 1s old":                                {SpecVersion: 7, PlanEpoch: 9, PlanAgeMS: 1000},
		"standalone, no spec file: defaults are in force":        {SpecFile: &admin.SpecFile{}},
		"standalone, spec file zone.yaml of 2026-01-02 03:04:05": {SpecVersion: 1, SpecFile: &admin.SpecFile{Path: "zone.yaml", ChangedAt: at}},
	} {
		if got := formatSpecInForce(&s); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
