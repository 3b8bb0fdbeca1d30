package main

import (
	"slices"
	"testing"

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
