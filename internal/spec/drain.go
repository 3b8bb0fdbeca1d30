package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// ParseDrain splits what a drain names: "region", "region/zone" or "region/zone/worker".
func ParseDrain(path string) (region, zone, worker string, err error) {
	parts := strings.Split(path, "/")
	if len(parts) > 3 {
		return "", "", "", fmt.Errorf("drain %q has %d parts: write region, region/zone or region/zone/worker", path, len(parts))
	}
	for i, p := range parts {
		if why := badDrainPart(p, i); why != "" {
			return "", "", "", fmt.Errorf("drain %q: %s: write region, region/zone or region/zone/worker", path, why)
		}
	}
	parts = append(parts, "", "")
	return parts[0], parts[1], parts[2], nil
}

func badDrainPart(p string, i int) string {
	if i < 2 {
		return BadLabel(p)
	}
	return badWord(p)
}

// CheckDrain reports why a drain's path names nothing that could be drained: the region must exist, and the zone where
// the region lists its zones. Workers come and go, so that any name is taken.
func (s *Spec) CheckDrain(path string) error {
	region, zone, _, err := ParseDrain(path)
	if err != nil {
		return err
	}
	r := s.Region(region)
	if r == nil {
		return fmt.Errorf("drain %q: unknown region %q: %s", path, region, strict.Suggest(region, s.regionNames(), "regions"))
	}
	if zone != "" && len(r.Zones) > 0 && !slices.Contains(r.Zones, zone) {
		return fmt.Errorf("drain %q: region %s has no zone %q: %s", path, region, zone, strict.Suggest(zone, r.Zones, "zones"))
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
