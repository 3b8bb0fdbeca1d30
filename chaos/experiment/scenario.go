package experiment

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// traceFolders are the workloads from traces, and the directory of each.
var traceFolders = map[string]string{"w1": "azure2023", "w2": "mooncake", "w3": "mooncake", "w4": "agentic", "w5": "servegen"}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeDir != 0
}

func roundToCount(v float64) int { return max(int(math.Round(v)), 1) }

// simFleet is the case's fleet for the simulator: groups of one zone in the order of the file.
func (c *Case) simFleet() sim.Fleet {
	var out sim.Fleet
	for i := range c.Fleet {
		g := &c.Fleet[i]
		r := slices.IndexFunc(out.Regions, func(r sim.FleetRegion) bool { return r.Name == g.Region })
		if r < 0 {
			r = len(out.Regions)
			out.Regions = append(out.Regions, sim.FleetRegion{Name: g.Region})
		}
		reg := &out.Regions[r]
		z := slices.IndexFunc(reg.Zones, func(z sim.FleetZone) bool { return z.Name == g.Zone })
		if z < 0 {
			z = len(reg.Zones)
			reg.Zones = append(reg.Zones, sim.FleetZone{Name: g.Zone})
		}
		group := sim.WorkerGroup{Count: g.Count, GPU: g.GPU, Model: g.Model, TP: g.TP, KVBlocks: g.CacheTokens / gpu.BlockTokens}
		if g.Slowdown != 1 {
			group.Slowdown = g.Slowdown
		}
		group.Limits.MaxModelLen = g.Window
		reg.Zones[z].Groups = append(reg.Zones[z].Groups, group)
	}
	return out
}

// fleetRows describes the fleet.
func (c *Case) fleetRows() (out []FleetRow) {
	for i := range c.Fleet {
		g := &c.Fleet[i]
		p, err := gpu.LookupProfile(g.GPU, g.Model, g.TP)
		if err != nil {
			continue // decoding has refused it
		}
		row := FleetRow{
			Region: g.Region, Zone: g.Zone, Count: g.Count, GPU: p.GPU, TP: p.TP, Model: p.Model, KVTokens: p.KVTokens(), PrefillRate: p.PrefillRate(2048),
			Dollars: float64(perfmodel.EstimatePrior(gpuName(p.GPU, p.TP), p.Model).CostMicros) / 1e6 * float64(g.Count),
		}
		if g.CacheTokens > 0 {
			row.KVTokens = g.CacheTokens / gpu.BlockTokens * gpu.BlockTokens
		}
		if g.Slowdown != 1 {
			row.Slowdown = g.Slowdown
		}
		out = append(out, row)
	}
	return out
}

// clientRegions are the fleet's regions, in the order of the file.
func (c *Case) clientRegions() (out []load.ClientRegion) {
	for i := range c.Fleet {
		if !slices.ContainsFunc(out, func(h load.ClientRegion) bool { return h.Name == c.Fleet[i].Region }) {
			out = append(out, load.ClientRegion{Name: c.Fleet[i].Region})
		}
	}
	return out
}

// openFeed makes the case's requests for one run.
func (c *Case) openFeed(e *Experiment, traces string, seed uint64) (*load.Feed, error) {
	w := *c.Workload
	w.Name, w.Seed, w.For = strings.ToLower(w.Name), seed, e.Duration
	if w.Traces == "" {
		w.Traces = traces
	}
	if len(w.Regions) == 0 {
		w.Regions = c.clientRegions()
		for i := range w.Regions { // a day begins earlier in the east
			w.Regions[i].Shift = (time.Duration(math.Round(e.locationOf(w.Regions[i].Name).Lon/15))*time.Hour + 24*time.Hour) % (24 * time.Hour)
		}
	}
	return load.OpenWorkload(w)
}

// makeScenario makes the scenario of one run.
func (c *Case) makeScenario(e *Experiment, policy string, seed uint64) sim.Scenario {
	s := sim.Scenario{
		Fleet: c.simFleet(), Policy: policy, Seed: seed, Staleness: sim.ScrapeStaleness{Interval: c.Staleness.Scrape, Delay: c.Staleness.Delay},
		Duration: e.Duration, WarmUp: e.WarmUp, GracePeriod: e.Grace, SLO: c.SLO.toSim(),
	}
	s.EstimateError = *c.EstimateError
	s.HideTenants, s.MaxInflight, s.SendSLO = c.Anonymous, c.maxUnderWay, c.SLO.Send
	if c.Limits == "exact" {
		s.OutputLimit = func(r *load.Request) int { return r.Output }
	}
	return s
}

// describeWorkload describes the workload.
func (c *Case) describeWorkload() string {
	names, titles := load.WorkloadNames()
	w := c.Workload
	out := strings.ToLower(w.Name)
	if i := slices.Index(names, out); i >= 0 {
		out += ", " + titles[i]
	}
	if w.Trace != "" {
		out += "; from " + filepath.Base(w.Trace)
	}
	for _, x := range []struct {
		what string
		v    float64
	}{
		{"%s per second", w.Rate},
		{"%s sessions", float64(w.Sessions)},
		{"branching %s", float64(w.Branch)},
		{"prompts of at most %s tokens", float64(w.MaxPrompt)},
		{"answers of at most %s tokens", float64(w.MaxOutput)},
		{"one session of %s kept", float64(w.Thin)},
	} {
		if x.v > 0 {
			out += "; " + fmt.Sprintf(x.what, formatPlain(x.v))
		}
	}
	if w.Every > 0 {
		out += "; a client sends at most every " + w.Every.String()
	}
	if w.Variant != "" {
		out += "; " + w.Variant
	}
	if len(w.Clients) > 0 {
		out += "; clients " + strings.Trim(strings.ReplaceAll(fmt.Sprint(w.Clients), " ", "/"), "[]")
	}
	return out
}

// roundValue rounds a value to one that the case can have.
func (c *Case) roundValue(v float64) float64 {
	if c.Vary == "rate" {
		return v
	}
	return math.Round(v)
}

// hasValuesBetween reports whether there is a value between one that meets the SLO and one that does not.
func (c *Case) hasValuesBetween(low, high float64) bool {
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) <= low {
		return false
	}
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) >= high {
		return false
	}
	return high/low > 1+c.Capacity.Within
}

// withValue sets a varied value in a case's workload or fleet.
func (c *Case) withValue(value float64) (Case, error) {
	out := *c
	w := *c.Workload
	out.Workload = &w
	switch c.Vary {
	case "rate":
		w.Rate = value
	case "sessions":
		w.Sessions = roundToCount(value)
	case "clients":
		w.Clients = make([]int, max(len(c.Workload.Clients), 1))
		for i := range w.Clients {
			w.Clients[i] = roundToCount(value)
		}
	case "workers":
		out.Fleet = slices.Clone(c.Fleet)
		for i := range out.Fleet {
			out.Fleet[i].Count = roundToCount(value)
		}
	case "thin":
		w.Thin = roundToCount(value)
		out.Fleet = slices.Clone(c.Fleet)
		for i := range out.Fleet {
			out.Fleet[i].Count = roundToCount(float64(out.Fleet[i].Count) / value)
		}
	default:
		return out, fmt.Errorf("%q cannot be varied: use rate, sessions, clients, workers or thin", c.Vary)
	}
	return out, nil
}
