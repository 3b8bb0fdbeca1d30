package snapshot

import (
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// BuildPlanInput converts the snapshot to the planner's input.
func (v *SteeringSnapshot) BuildPlanInput() *steer.PlanInput {
	in := &steer.PlanInput{Spec: v.Spec, SpecVersion: v.Version, Prev: v.Plan, HeavyHitters: v.CollectHeavyHitters()}
	seen := map[string]bool{}
	for r := range v.Regions {
		in.Regions = append(in.Regions, v.RegionCapacity(r))
		if !v.Regions[r].HasReport() || v.Regions[r].IsDead() {
			continue
		}
		for _, d := range v.Regions[r].Group.Summary.Demand {
			in.Demand = append(in.Demand, v.CellDemandFor(r, d.Service, d.Model, d.Cell, d.TokensPerSec))
			if cell := geo.ParseCellName(d.Cell); cell != geo.NoCell && !seen[d.Cell] {
				seen[d.Cell] = true
				if rtt := v.Geo.RTTRow(cell); rtt != nil {
					in.Cells = append(in.Cells, steer.Cell{Name: d.Cell, RTT: rtt})
				}
			}
		}
	}
	return in
}

// RegionCapacity converts a region to the planner's input.
func (v *SteeringSnapshot) RegionCapacity(region int) steer.RegionState {
	r := &v.Regions[region]
	out := steer.RegionState{Drained: r.Drained, Dead: r.IsDead(), Stale: r.IsUnreachable()}
	if !r.HasReport() || r.IsDead() { // a region that only some nodes have lost keeps its last capacity
		return out
	}
	for i := range r.Group.Summary.Models {
		m := r.Group.Summary.Models[i]
		x := steer.ModelCapacity{Name: m.Name, Ready: float64(m.Ready), Warm: float64(m.Warm), Cold: float64(m.Cold), WakeSeconds: float64(m.WarmMillis) / 1000, Total: float64(m.Total)}
		for _, h := range m.Hardware {
			x.Hardware = append(x.Hardware, steer.HardwareCapacity{Name: h.Name, Ready: float64(h.Ready), Rate: float64(h.PrefillRate)})
		}
		if wait, ok := m.PredictWait(spec.Standard); ok { // otherwise no worker is ready, even if rates were learned
			x.Rate, x.Wait, x.CachedPrefixShare = float64(m.PrefillRate()), wait.Seconds(), v.cachedPrefixShare(m)
		}
		out.Models = append(out.Models, x)
	}
	return out
}

// CellDemandFor uses the spec's name of the service: clients arrive under the service's name or under a region's
// child name of it.
func (v *SteeringSnapshot) CellDemandFor(region int, service, model, cell string, rate int64) steer.CellDemand {
	if i := v.ServiceIndex(service); i >= 0 {
		service = v.Spec.Services[i].Name
	}
	return steer.CellDemand{
		Service: service, Model: model, Cell: cell, Region: v.Spec.Regions[region].Name, Rate: float64(rate),
	}
}

// CollectDemand returns the demand in the snapshot as the planner's input.
func (v *SteeringSnapshot) CollectDemand() (out []steer.CellDemand) {
	for r := range v.Regions {
		if !v.Regions[r].HasReport() || v.Regions[r].IsDead() {
			continue
		}
		for _, d := range v.Regions[r].Group.Summary.Demand {
			x := v.CellDemandFor(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			if v.ServiceIndex(x.Service) >= 0 {
				x.Region = ""
			}
			out = append(out, x)
		}
	}
	return out
}

// CollectHeavyHitters returns the client networks that gateways report as heavy, as the planner's input.
func (v *SteeringSnapshot) CollectHeavyHitters() (out []steer.HeavyHitter) {
	for r := range v.Regions {
		if !v.Regions[r].HasReport() || v.Regions[r].IsDead() {
			continue
		}
		for _, n := range v.Regions[r].Group.Summary.Networks {
			if i := v.ServiceIndex(n.Service); i >= 0 {
				out = append(out, steer.HeavyHitter{
					Service: v.Spec.Services[i].Name, Cell: n.Cell, Network: n.Number, Rate: float64(n.TokensPerSec),
					Region: v.Spec.Regions[r].Name,
				})
			}
		}
	}
	return out
}

// CellKey identifies the demand of a cell for a service.
type CellKey struct{ Service, Cell string }

// MeanRequestTokens returns the mean size of a request by service and cell, in tokens.
func (v *SteeringSnapshot) MeanRequestTokens() map[CellKey]float64 {
	rate, requests := map[CellKey]float64{}, map[CellKey]float64{}
	for r := range v.Regions {
		if !v.Regions[r].HasReport() || v.Regions[r].IsDead() {
			continue
		}
		for _, d := range v.Regions[r].Group.Summary.Demand {
			x := v.CellDemandFor(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			k := CellKey{x.Service, x.Cell}
			rate[k] += x.Rate
			requests[k] += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	for k := range rate {
		if requests[k] > 0 {
			rate[k] /= requests[k]
		}
	}
	return rate
}

// OfferedLoad returns the demand for a model in a region, in tokens/s and requests/s.
func (v *SteeringSnapshot) OfferedLoad(region int, model string) (tokens, requests float64) {
	for _, d := range v.Regions[region].Group.Summary.Demand {
		if d.Model == model {
			tokens += float64(d.TokensPerSec)
			requests += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	return tokens, requests
}

// cachedPrefixShare returns the share (0..1) of the model's hot prefixes, by tokens, that a region's caches hold; 1
// if no hot prefixes are known anywhere.
func (v *SteeringSnapshot) cachedPrefixShare(m *capacity.ModelCapacity) float64 {
	if !v.usesPrefixes() {
		return 1
	}
	best := map[uint64]int64{}
	for r := range v.Regions {
		if other := v.Regions[r].Group.Summary.FindModel(m.Name); other != nil {
			for _, p := range other.Prefixes {
				best[p.Hash] = max(best[p.Hash], p.Tokens)
			}
		}
	}
	var all, held int64
	for _, tokens := range best {
		all += tokens
	}
	for _, p := range m.Prefixes {
		held += p.Tokens
	}
	if all <= 0 {
		return 1
	}
	return float64(held) / float64(all)
}
