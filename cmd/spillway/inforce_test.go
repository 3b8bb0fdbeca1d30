package main

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestStatusSaysWhatIsInForce: versions and plans where there are any, and the file of a zone that stands alone.
func TestStatusSaysWhatIsInForce(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, s := range map[string]admin.Status{
		"spec v7  plan 9, 1s old":                                  {SpecVersion: 7, PlanEpoch: 9, PlanAgeMS: 1000},
		"stands alone, no spec file: defaults are in force":        {SpecFile: &admin.SpecFile{}},
		"stands alone, spec file zone.yaml of 2026-01-02 03:04:05": {SpecVersion: 1, SpecFile: &admin.SpecFile{Path: "zone.yaml", ChangedAt: at}},
	} {
		if got := inForce(&s); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
