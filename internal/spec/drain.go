package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// ParseDrain splits the path of a drain: "region", "region/zone" or "region/zone/worker".
func ParseDrain(path string) (region, zone, worker string, err error) {
	parts := strings.Split(path, "/")
	if len(parts) > 3 {
		return "", "", "", fmt.Errorf("drain %q has %d parts: write region, region/zone or region/zone/worker", path, len(parts))
	}
	for i, p := range parts {
		if why := drainPartProblem(p, i); why != "" {
			return "", "", "", fmt.Errorf("drain %q: %s: write region, region/zone or region/zone/worker", path, why)
		}
	}
	parts = append(parts, "", "")
	return parts[0], parts[1], parts[2], nil
}

func drainPartProblem(p string, i int) string {
	if i < 2 {
		return LabelProblem(p)
	}
	return nameProblem(p)
}

// CheckDrain returns why the path of a drain is invalid: the region must exist, and the zone too if the region
// lists its zones. Any worker name is accepted, because workers come and go.
func (s *Spec) CheckDrain(path string) error {
	region, zone, _, err := ParseDrain(path)
	if err != nil {
		return err
	}
	r := s.FindRegion(region)
	if r == nil {
		return fmt.Errorf("drain %q: unknown region %q: %s", path, region, strict.SuggestName(region, s.regionNames(), "regions"))
	}
	if zone != "" && len(r.Zones) > 0 && !slices.Contains(r.Zones, zone) {
		return fmt.Errorf("drain %q: region %s has no zone %q: %s", path, region, zone, strict.SuggestName(zone, r.Zones, "zones"))
	}
	return nil
}

func (s *Spec) regionNames() []string {
	names := make([]string, len(s.Regions))
	for i := range s.Regions {
		names[i] = s.Regions[i].Name
	}
	return names
}

// DrainShare returns the fraction of new traffic that a drain leaves at now, from 1 to 0: it falls linearly
// from start over the time over. If over is 0 or start is unknown, the drain is complete at once.
func DrainShare(start time.Time, over time.Duration, now time.Time) float64 {
	if over <= 0 || start.IsZero() {
		return 0
	}
	return 1 - min(max(float64(now.Sub(start))/float64(over), 0), 1)
}
