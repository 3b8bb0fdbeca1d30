package spec

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *validator) checkSteering(s *Steering) {
	const path = "$.steering"
	j.checkDuration(path+".interval", "interval", s.Interval, 100*time.Millisecond, time.Minute)
	if !(s.DeadBand >= 0 && s.DeadBand < 1) {
		j.addProblem(path+".dead_band", fmt.Sprintf("dead_band %v is out of range", s.DeadBand), "write a relative gain from 0 up to 1, such as 0.05")
	}
	j.checkShare(path+".max_step", "max_step", s.MaxStep)
	j.checkShare(path+".min_shift", "min_shift", s.MinShift)
	j.checkShare(path+".slew", "slew", s.Slew)
	if s.Ramp != nil {
		j.checkDuration(path+".ramp", "ramp", *s.Ramp, 0, time.Hour)
	}
	if s.DrainGuard != nil && !(*s.DrainGuard >= 0 && *s.DrainGuard <= 0.5) {
		j.addProblem(path+".drain_guard", fmt.Sprintf("drain_guard %v is out of range", *s.DrainGuard), "write a part of all capacity from 0 (never) to 0.5")
	}
	for _, c := range []struct {
		key string
		n   *int
	}{{"drain_min_regions", s.DrainMinRegions}, {"drain_min_zones", s.DrainMinZones}} {
		if c.n != nil && !(*c.n >= 0 && *c.n <= 256) {
			j.addProblem(path+"."+c.key, fmt.Sprintf("%s %d is out of range", c.key, *c.n), "write a number from 0 (a drain may leave none) to 256")
		}
	}
	if c := s.DrainMinCapacity; c != nil && !(*c >= 0 && *c <= 1) {
		j.addProblem(path+".drain_min_capacity", fmt.Sprintf("drain_min_capacity %v is out of range", *c), "write a part of the capacity from 0 (a drain may leave none) to 1")
	}
	if !(s.DollarMS >= 0 && s.DollarMS <= 10_000) {
		j.addProblem(path+".dollar_ms", fmt.Sprintf("dollar_ms %v is out of range", s.DollarMS), "write milliseconds from 0 (money does not count) to 10000")
	}
}

// maxSessionTokens bounds the context of a session: far more than any model supports.
const maxSessionTokens = 10_000_000

// checkServiceSteering checks the canary, the pilot light and the session cost of a service.
func (j *validator) checkServiceSteering(s *Service, path string) {
	switch {
	case s.MinWarm < 0:
		j.addProblem(path+".min_warm", fmt.Sprintf("min_warm %d is negative", s.MinWarm), "write a number of workers, or leave it out")
	case s.MinWarm > 0 && s.Mode != "failover":
		j.addProblem(path+".min_warm", fmt.Sprintf("min_warm has no effect in mode %q", s.Mode), "write mode: failover, or take min_warm out")
	}
	for _, k := range []struct {
		key    string
		tokens int
	}{{"session_tokens", s.SessionTokens}, {"prefix_tokens", s.PrefixTokens}} {
		if k.tokens < 0 || k.tokens > maxSessionTokens {
			j.addProblem(path+"."+k.key, fmt.Sprintf("%s %d is out of range", k.key, k.tokens), fmt.Sprintf("write tokens from 0 to %d", maxSessionTokens))
		}
	}
	j.checkCanary(s, path+".canary")
}

func (j *validator) checkCanary(s *Service, path string) {
	c := &s.Canary
	if *c == (Canary{}) {
		return
	}
	if c.Region == "" {
		j.addProblem(path, "the canary has no region", "write canary: {region: "+exampleName(j.regions)+", share: 0.05}")
		return
	}
	j.checkReferences("region", "$.regions[*].name", []string{c.Region}, j.regions, func(int) string { return path + ".region" })
	if len(s.Regions) > 0 && slices.Contains(j.regions, c.Region) && !slices.Contains(s.Regions, c.Region) {
		j.problems = append(j.problems, Problem{
			Path: path + ".region", DependsOn: path[:len(path)-len("canary")] + "regions",
			Reason: fmt.Sprintf("region %q is the canary but not among the service's regions", c.Region), Hint: "add it to regions, or name another canary",
		})
	}
	if !(c.Share > 0 && c.Share < 1) {
		j.addProblem(path+".share", fmt.Sprintf("share %v of the canary is not a part", c.Share), "write a number above 0 and below 1, such as 0.05")
	}
}

// checkZoneWeights checks the zone weights of a region.
func (j *validator) checkZoneWeights(r *Region, path string) {
	for _, name := range slices.Sorted(maps.Keys(r.ZoneWeights)) {
		here := path + ".zone_weights." + strict.QuoteKey(name)
		if !slices.Contains(r.Zones, name) {
			j.problems = append(j.problems, Problem{
				Path: here, CaretAtKey: true, DependsOn: path + ".zones",
				Reason: fmt.Sprintf("unknown zone %q", name), Hint: strict.SuggestName(name, r.Zones, "zones"),
			})
		}
		if w := r.ZoneWeights[name]; !(w >= 0.01 && w <= 100) {
			j.addProblem(here, fmt.Sprintf("weight %v is out of range", w), "write a factor from 0.01 to 100; to send nothing to a zone, drain it")
		}
	}
}

// checkRegionSteering checks the bias, costs and quotas of a region.
func (j *validator) checkRegionSteering(r *Region, path string) {
	if !(r.BiasMS >= -10_000 && r.BiasMS <= 10_000) {
		j.addProblem(path+".bias_ms", fmt.Sprintf("bias_ms %v is out of range", r.BiasMS), "write milliseconds from -10000 (attracts) to 10000 (repels)")
	}
	if !(r.BiasPercent >= -99 && r.BiasPercent <= 99) {
		j.addProblem(path+".bias_percent", fmt.Sprintf("bias_percent %v is out of range", r.BiasPercent), "write a percentage of the RTT from -99 (repels) to 99 (attracts)")
	}
	if !(r.EgressCost >= 0 && r.EgressCost <= 10_000) {
		j.addProblem(path+".egress_cost", fmt.Sprintf("egress_cost %v is out of range", r.EgressCost), "write dollars per million tokens, from 0 to 10000")
	}
	if !(r.MaxWorkers >= 0 && r.MaxWorkers <= 1_000_000) {
		j.addProblem(path+".max_workers", fmt.Sprintf("max_workers %d is out of range", r.MaxWorkers), "write the number of workers that the region has at most for one model, up to 1000000, or leave it out")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Quotas)) {
		here := path + ".quotas." + strict.QuoteKey(name)
		if !slices.Contains(j.models, name) {
			j.problems = append(j.problems, Problem{
				Path: here, CaretAtKey: true, DependsOn: "$.models[*].name",
				Reason: fmt.Sprintf("unknown model %q", name), Hint: strict.SuggestName(name, j.models, "models"),
			})
		}
		if q := r.Quotas[name]; !(q >= 0) || !isFinite(q) {
			j.addProblem(here, fmt.Sprintf("quota %v is not an amount", q), "write tokens/s, 0 to send nothing there")
		}
	}
}
