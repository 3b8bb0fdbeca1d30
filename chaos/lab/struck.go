package lab

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// struckFor is how long what breaks may go on costing requests: the catalogue's recovery.
const struckFor = 10 * time.Second

// struck is the part of all requests that falls due at what breaks, before it has to be recovered from: in the first ten
// seconds of each fault, of the clients of its region, as many as the broken workers are of the region's. Where no worker
// breaks, nothing is struck.
func struck(r *sim.Result) (float64, string) {
	if len(r.Faults) == 0 {
		return 0, "nothing broke"
	}
	part := 0.0
	for i := range r.Faults {
		f := &r.Faults[i]
		part += homeShare(r, f.Region) * brokenShare(r, f) * dueShare(r, f)
	}
	return min(part, 1), ""
}

// homeShare is the part of the requests that a region's clients ask.
func homeShare(r *sim.Result, region string) float64 {
	for i := range r.Regions {
		if p := &r.Regions[i]; p.Name == region {
			return ratio(float64(p.Counts.Sent), float64(r.Measured.Sent))
		}
	}
	if len(r.Regions) == 0 {
		return 1 // there is only one
	}
	return 0
}

// brokenShare is the part of its region's workers that a fault breaks.
func brokenShare(r *sim.Result, f *sim.Fault) float64 {
	var zone, region float64
	for i := range r.Workers {
		if w := &r.Workers[i]; w.Region == f.Region {
			region++
			if w.Zone == f.Zone {
				zone++
			}
		}
	}
	switch f.Kind {
	case sim.RegionDead:
		return ratio(region, region)
	case sim.ZoneDead:
		return ratio(zone, region)
	case sim.WorkerDead, sim.WorkerStalled, sim.WorkerSlow:
		return ratio(float64(max(f.Workers, 1)), region)
	}
	return 0
}

// dueShare is the part of the measured requests that falls due while a fault is struck by.
func dueShare(r *sim.Result, f *sim.Fault) float64 {
	begin, end := seconds(f.At), seconds(f.At+struckFor)
	if f.For > 0 {
		end = min(end, seconds(f.At+f.For))
	}
	var due float64
	for s := begin; s < min(end, len(r.Seconds)); s++ {
		due += float64(r.Seconds[s].Sent)
	}
	return ratio(due, float64(r.Measured.Sent))
}
