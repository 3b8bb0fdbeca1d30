package spec

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *judge) steering(s *Steering) {
	const path = "$.steering"
	j.between(path+".interval", "interval", s.Interval, 100*time.Millisecond, time.Minute)
	if !(s.DeadBand >= 0 && s.DeadBand < 1) {
		j.bad(path+".dead_band", fmt.Sprintf("dead_band %v is out of range", s.DeadBand), "write a relative gain from 0 up to 1, such as 0.05")
	}
	j.share(path+".max_step", "max_step", s.MaxStep)
	j.share(path+".min_shift", "min_shift", s.MinShift)
	j.share(path+".slew", "slew", s.Slew)
	if s.Ramp != nil {
		j.between(path+".ramp", "ramp", *s.Ramp, 0, time.Hour)
	}
	if s.DrainGuard != nil && !(*s.DrainGuard >= 0 && *s.DrainGuard <= 0.5) {
		j.bad(path+".drain_guard", fmt.Sprintf("drain_guard %v is out of range", *s.DrainGuard), "write a part of all capacity from 0 (never) to 0.5")
	}
	for _, c := range []struct {
		key string
		n   *int
	}{{"drain_min_regions", s.DrainMinRegions}, {"drain_min_zones", s.DrainMinZones}} {
		if c.n != nil && !(*c.n >= 0 && *c.n <= 256) {
			j.bad(path+"."+c.key, fmt.Sprintf("%s %d is out of range", c.key, *c.n), "write a number from 0 (a drain may leave none) to 256")
		}
	}
	if c := s.DrainMinCapacity; c != nil && !(*c >= 0 && *c <= 1) {
		j.bad(path+".drain_min_capacity", fmt.Sprintf("drain_min_capacity %v is out of range", *c), "write a part of the capacity from 0 (a drain may leave none) to 1")
	}
	if !(s.DollarMS >= 0 && s.DollarMS <= 10_000) {
		j.bad(path+".dollar_ms", fmt.Sprintf("dollar_ms %v is out of range", s.DollarMS), "write milliseconds from 0 (money does not count) to 10000")
	}
}

// maxSessionTokens bounds a session's context: far beyond what any model takes.
const maxSessionTokens = 10_000_000

// serviceSteering judges what a service says of canaries, pilot lights and the cost of moving its clients.
func (j *judge) serviceSteering(s *Service, path string) {
	switch {
	case s.MinWarm < 0:
		j.bad(path+".min_warm", fmt.Sprintf("min_warm %d is negative", s.MinWarm), "write a number of workers, or leave it out")
	case s.MinWarm > 0 && s.Mode != "failover":
		j.bad(path+".min_warm", fmt.Sprintf("min_warm has no effect in mode %q", s.Mode), "write mode: failover, or take min_warm out")
	}
	for _, k := range []struct {
		key    string
		tokens int
	}{{"session_tokens", s.SessionTokens}, {"prefix_tokens", s.PrefixTokens}} {
		if k.tokens < 0 || k.tokens > maxSessionTokens {
			j.bad(path+"."+k.key, fmt.Sprintf("%s %d is out of range", k.key, k.tokens), fmt.Sprintf("write tokens from 0 to %d", maxSessionTokens))
		}
	}
	j.canary(s, path+".canary")
}

func (j *judge) canary(s *Service, path string) {
	c := &s.Canary
	if *c == (Canary{}) {
		return
	}
	if c.Region == "" {
		j.bad(path, "the canary has no region", "write canary: {region: "+firstOf(j.regions)+", share: 0.05}")
		return
	}
	j.known("region", "$.regions[*].name", []string{c.Region}, j.regions, func(int) string { return path + ".region" })
	if len(s.Regions) > 0 && slices.Contains(j.regions, c.Region) && !slices.Contains(s.Regions, c.Region) {
		j.found = append(j.found, Problem{
			Path: path + ".region", Needs: path[:len(path)-len("canary")] + "regions",
			Reason: fmt.Sprintf("region %q is the canary but not among the service's regions", c.Region), Hint: "add it to regions, or name another canary",
		})
	}
	if !(c.Share > 0 && c.Share < 1) {
		j.bad(path+".share", fmt.Sprintf("share %v of the canary is not a part", c.Share), "write a number above 0 and below 1, such as 0.05")
	}
}

// zoneWeights judges how a region's zones share what they are equally good for.
func (j *judge) zoneWeights(r *Region, path string) {
	for _, name := range slices.Sorted(maps.Keys(r.ZoneWeights)) {
		here := path + ".zone_weights." + strict.Key(name)
		if !slices.Contains(r.Zones, name) {
			j.found = append(j.found, Problem{
				Path: here, AtKey: true, Needs: path + ".zones",
				Reason: fmt.Sprintf("unknown zone %q", name), Hint: strict.Suggest(name, r.Zones, "zones"),
			})
		}
		if w := r.ZoneWeights[name]; !(w >= 0.01 && w <= 100) {
			j.bad(here, fmt.Sprintf("weight %v is out of range", w), "write a factor from 0.01 to 100; to send nothing to a zone, drain it")
		}
	}
}

// regionSteering judges a region's bias, money and quotas.
func (j *judge) regionSteering(r *Region, path string) {
	if !(r.BiasMS >= -10_000 && r.BiasMS <= 10_000) {
		j.bad(path+".bias_ms", fmt.Sprintf("bias_ms %v is out of range", r.BiasMS), "write milliseconds from -10000 (attracts) to 10000 (repels)")
	}
	if !(r.BiasPercent >= -99 && r.BiasPercent <= 99) {
		j.bad(path+".bias_percent", fmt.Sprintf("bias_percent %v is out of range", r.BiasPercent), "write a percentage of the RTT from -99 (repels) to 99 (attracts)")
	}
	if !(r.EgressCost >= 0 && r.EgressCost <= 10_000) {
		j.bad(path+".egress_cost", fmt.Sprintf("egress_cost %v is out of range", r.EgressCost), "write dollars per million tokens, from 0 to 10000")
	}
	if !(r.MaxWorkers >= 0 && r.MaxWorkers <= 1_000_000) {
		j.bad(path+".max_workers", fmt.Sprintf("max_workers %d is out of range", r.MaxWorkers), "write the number of workers that the region has at most for one model, up to 1000000, or leave it out")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Quotas)) {
		here := path + ".quotas." + strict.Key(name)
		if !slices.Contains(j.models, name) {
			j.found = append(j.found, Problem{
				Path: here, AtKey: true, Needs: "$.models[*].name",
				Reason: fmt.Sprintf("unknown model %q", name), Hint: strict.Suggest(name, j.models, "models"),
			})
		}
		if q := r.Quotas[name]; !(q >= 0) || !finite(q) {
			j.bad(here, fmt.Sprintf("quota %v is not an amount", q), "write tokens/s, 0 to send nothing there")
		}
	}
}
