package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

func (f *Fleet) findRegion(name string) *FleetRegion {
	for i := range f.Regions {
		if f.Regions[i].Name == name {
			return &f.Regions[i]
		}
	}
	return nil
}

func (r *FleetRegion) findZone(name string) *FleetZone {
	for i := range r.Zones {
		if r.Zones[i].Name == name {
			return &r.Zones[i]
		}
	}
	return nil
}

// servedModels are the models that the fleet serves, in order.
func (f *Fleet) servedModels() (out []string) {
	for _, g := range f.workerGroups() {
		if p, err := gpu.LookupProfile(g.GPU, g.Model, g.TP); err == nil && !slices.Contains(out, p.Model) {
			out = append(out, p.Model)
		}
	}
	slices.Sort(out)
	return out
}

func (f *Fleet) workerGroups() (out []*WorkerGroup) {
	for i := range f.Regions {
		for k := range f.Regions[i].Zones {
			z := &f.Regions[i].Zones[k]
			for g := range z.Groups {
				out = append(out, &z.Groups[g])
			}
		}
	}
	return out
}

// Fleet is the regions, zones and workers.
type Fleet struct {
	Regions []FleetRegion
}

// FleetRegion is a region.
type FleetRegion struct {
	Name string
	// Lat and Lon are its location, in degrees.
	Lat, Lon float64
	Zones    []FleetZone
	// Gateways is the number of instances of the regional tier, if there is one. Default 1.
	Gateways int
}

func (f *Fleet) checkFleet() error {
	if len(f.Regions) == 0 {
		return errors.New("the fleet has no region: give it one with a zone and a group of workers")
	}
	regions, total := map[string]bool{}, 0
	for i := range f.Regions {
		r := &f.Regions[i]
		if r.Name == "" || regions[r.Name] {
			return fmt.Errorf("region %d is called %q: give each region a name of its own", i+1, r.Name)
		}
		regions[r.Name] = true
		if !(math.Abs(r.Lat) <= 90) || !(math.Abs(r.Lon) <= 180) {
			return fmt.Errorf("region %s lies at %v, %v: use degrees, -90 to 90 and -180 to 180", r.Name, r.Lat, r.Lon)
		}
		if len(r.Zones) == 0 {
			return fmt.Errorf("region %s has no zone: give it one with a group of workers, or leave the region out", r.Name)
		}
		if r.Gateways < 0 || r.Gateways > maxInstances {
			return fmt.Errorf("region %s has %d gateways: use 1 to %d", r.Name, r.Gateways, maxInstances)
		}
		zones := map[string]bool{}
		for k := range r.Zones {
			z := &r.Zones[k]
			if z.Name == "" || zones[z.Name] {
				return fmt.Errorf("zone %d of region %s is called %q: give each zone a name of its own", k+1, r.Name, z.Name)
			}
			zones[z.Name] = true
			n, err := z.checkZone()
			if err != nil {
				return fmt.Errorf("zone %s/%s: %w", r.Name, z.Name, err)
			}
			total += n
		}
	}
	if total == 0 {
		return errors.New("the fleet has no worker: give a zone a group with a count of 1 or more")
	}
	if total > maxWorkers {
		return fmt.Errorf("the fleet has %d workers, and %d are simulated at most: keep one of every k regions' workers and sessions (thinning)", total, maxWorkers)
	}
	return nil
}
