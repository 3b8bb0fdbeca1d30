package experiment

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

const (
	// recoveryWindow is the number of seconds over which requests are counted together, and recoveryLoss the
	// tolerated decrease of the fraction that meets the SLO, relative to before a fault.
	recoveryWindow = 3
	recoveryLoss   = 0.05
)

// recoveryTime is the time from an injected or cleared fault to the end of the last window in which notably fewer
// requests met the SLO than before any fault: the seconds until goodput is back for good. The longest of all faults.
func recoveryTime(r *sim.RunResult) (float64, string) {
	if len(r.Faults) == 0 {
		return 0, "the run has no fault"
	}
	var moments []int
	for i := range r.Faults {
		f := &r.Faults[i]
		moments = append(moments, wholeSeconds(f.At))
		if f.For > 0 {
			moments = append(moments, wholeSeconds(f.At+f.For))
		}
	}
	first := moments[0]
	for _, m := range moments {
		first = min(first, m)
	}
	// Requests that arrive at the end count by their answers, as everywhere.
	end := len(r.PerSecond)
	before := attainedShare(r.PerSecond, end-wholeSeconds(r.Window), first)
	if before < 0 {
		return 0, fmt.Sprintf("a fault at %ds precedes the measured time", first)
	}
	longest := 0.0
	for _, m := range moments {
		until := end // or until the next fault
		for _, o := range moments {
			if o > m {
				until = min(until, o)
			}
		}
		for s := m; s < until; s++ {
			stop := min(s+recoveryWindow, until)
			if a := attainedShare(r.PerSecond, s, stop); a >= 0 && a < before-recoveryLoss {
				longest = max(longest, float64(stop-m))
			}
		}
	}
	return longest, ""
}

func wholeSeconds(d time.Duration) int { return int(d / time.Second) }

// attainedShare is the fraction of the requests of some seconds that met the SLO; -1 without requests.
func attainedShare(list []sim.SecondCounts, from, to int) float64 {
	var sent, good int32
	for s := max(from, 0); s < min(to, len(list)); s++ {
		sent, good = sent+list[s].Sent, good+list[s].Good
	}
	if sent == 0 {
		return -1
	}
	return float64(good) / float64(sent)
}

// affectedDuration is how long a fault may cost requests: the catalogue's recovery time.
const affectedDuration = 10 * time.Second

// affectedShare is the fraction of all requests that are due at the target of a fault before recovery is required: in
// the first ten seconds of each fault, of the clients of its region, in proportion to the faulty workers of the
// region. Without a fault of workers it is 0.
func affectedShare(r *sim.RunResult) (float64, string) {
	if len(r.Faults) == 0 {
		return 0, "the run has no fault"
	}
	part := 0.0
	for i := range r.Faults {
		f := &r.Faults[i]
		part += homeShare(r, f.Region) * brokenShare(r, f) * dueShare(r, f)
	}
	return min(part, 1), ""
}

// homeShare is the fraction of the requests from a region's clients.
func homeShare(r *sim.RunResult, region string) float64 {
	for i := range r.Regions {
		if p := &r.Regions[i]; p.Name == region {
			return ratioOrZero(float64(p.Counts.Sent), float64(r.Measured.Sent))
		}
	}
	if len(r.Regions) == 0 {
		return 1 // there is only one
	}
	return 0
}

// brokenShare is the fraction of its region's workers that a fault affects.
func brokenShare(r *sim.RunResult, f *sim.Fault) float64 {
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
		return ratioOrZero(region, region)
	case sim.ZoneDead:
		return ratioOrZero(zone, region)
	case sim.WorkerDead, sim.WorkerStalled, sim.WorkerSlow, sim.WorkerRefuses, sim.WorkerCuts:
		return ratioOrZero(float64(max(f.Workers, 1)), region)
	}
	return 0
}

// dueShare is the fraction of the measured requests that are due in a fault's first ten seconds.
func dueShare(r *sim.RunResult, f *sim.Fault) float64 {
	begin, end := wholeSeconds(f.At), wholeSeconds(f.At+affectedDuration)
	if f.For > 0 {
		end = min(end, wholeSeconds(f.At+f.For))
	}
	var due float64
	for s := begin; s < min(end, len(r.PerSecond)); s++ {
		due += float64(r.PerSecond[s].Sent)
	}
	return ratioOrZero(due, float64(r.Measured.Sent))
}
