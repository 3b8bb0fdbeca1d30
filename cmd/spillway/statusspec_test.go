package main

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

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
