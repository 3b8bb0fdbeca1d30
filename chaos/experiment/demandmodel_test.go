package experiment_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// E11 judges the planner alone, without workers: how close its plans are to the optimum, how much demand they move, and
// whether the moved demand finds room, in comparison with a waterfall (each region first, overflow to the nearest with room)
// and with the optimum computed for every epoch.
//
// Demand is ServeGen's clients in thirty regions, each model a service of its own, minute by minute; capacity follows from
// the first half of the trace and plans are judged on the second, which is unknown to them. A plan is judged by the demand of
// the minute after it was made. Its cost is global/steer's own measure: seconds to a region, and the cost of a region above
// its target to the clients served there.

const (
	// modelCount is the number of models of the clients, and residentModels how many of them stay on the client's
	// continent.
	modelCount, residentModels = 50, 10
	// workerTokensPerSecond is the rate of one worker, in tokens/s, and peakUtilisation the used fraction of a
	// model's workers at its peak.
	workerTokensPerSecond, peakUtilisation = 5000.0, 0.7
)

// regionPlace is a region with its continent, for residency.
type regionPlace struct {
	Name, Continent string
	Lat, Lon        float64
}

// demandModel is the clients' demand and the capacity.
type demandModel struct {
	places   []regionPlace
	input    steer.PlanInput
	services []modelService
	capacity [][]float64 // model, region; tokens/s
	windows  int
}

// modelService is a model for the clients of one continent, or of all.
type modelService struct {
	model   int
	allowed []int       // regions
	demand  [][]float64 // cell, window; tokens/s
}

// newDemandModel assigns clients to models. Capacity is the peak demand of the first half of the trace, where it
// occurs.
func newDemandModel(places []regionPlace, clients []load.ClientRate) (*demandModel, error) {
	if len(clients) == 0 || len(places) == 0 {
		return nil, fmt.Errorf("%d clients in %d places: use at least one of each", len(clients), len(places))
	}
	w := &demandModel{places: places, windows: len(clients[0].Tokens), capacity: make([][]float64, modelCount)}
	w.makeServices()
	for i := range clients {
		c := &clients[i]
		s := w.serviceFor(int(c.ID%modelCount), int(c.Region))
		for t, tokens := range c.Tokens[:min(len(c.Tokens), w.windows)] {
			s.demand[c.Region][t] += tokens
		}
	}
	w.placeWorkers()
	w.writeInput()
	return w, nil
}

// makeServices makes the services, the first models with one for each continent.
func (w *demandModel) makeServices() {
	var continents []string
	for _, p := range w.places {
		if !slices.Contains(continents, p.Continent) {
			continents = append(continents, p.Continent)
		}
	}
	add := func(model int, continent string) {
		s := modelService{model: model, demand: make([][]float64, len(w.places))}
		for r, p := range w.places {
			s.demand[r] = make([]float64, w.windows)
			if continent == "" || p.Continent == continent {
				s.allowed = append(s.allowed, r)
			}
		}
		w.services = append(w.services, s)
	}
	for m := range modelCount {
		if m >= residentModels {
			add(m, "")
			continue
		}
		for _, c := range continents {
			add(m, c)
		}
	}
}

func (w *demandModel) serviceFor(model, region int) *modelService {
	i := slices.IndexFunc(w.services, func(s modelService) bool { return s.model == model && slices.Contains(s.allowed, region) })
	return &w.services[i]
}

// placeWorkers places workers by the demand of the first half of the trace.
func (w *demandModel) placeWorkers() {
	for m := range w.capacity {
		w.capacity[m] = make([]float64, len(w.places))
	}
	half := w.windows / 2
	for i := range w.services {
		s := &w.services[i]
		mean, peak, all := make([]float64, len(w.places)), 0.0, 0.0
		for t := range half {
			sum := 0.0
			for r := range mean {
				mean[r] += s.demand[r][t]
				sum += s.demand[r][t]
			}
			peak, all = max(peak, sum), all+sum
		}
		if all == 0 {
			continue
		}
		for range int(math.Ceil(peak / peakUtilisation / workerTokensPerSecond)) {
			// The next worker goes where demand is covered least.
			best := slices.MaxFunc(s.allowed, func(a, b int) int {
				return cmp.Compare(mean[a]/(w.capacity[s.model][a]+workerTokensPerSecond), mean[b]/(w.capacity[s.model][b]+workerTokensPerSecond))
			})
			w.capacity[s.model][best] += workerTokensPerSecond
		}
	}
}

// writeInput writes the planner's input, except demand.
func (w *demandModel) writeInput() {
	sp := &spec.Spec{Steering: spec.Steering{Interval: spec.Duration(time.Second), DeadBand: 0.05, MaxStep: 0.25, MinShift: 0.02, Slew: 0.25}}
	for r, p := range w.places {
		sp.Regions = append(sp.Regions, spec.Region{Name: p.Name, MaxShare: 0.85})
		cell := steer.Cell{Name: p.Name}
		for _, q := range w.places {
			cell.RTT = append(cell.RTT, float32(geo.PriorRTT(geo.Location{Lat: p.Lat, Lon: p.Lon}, geo.Location{Lat: q.Lat, Lon: q.Lon}).Seconds()))
		}
		w.input.Cells = append(w.input.Cells, cell)
		region := steer.RegionState{}
		for m := range modelCount {
			if c := w.capacity[m][r]; c > 0 {
				region.Models = append(region.Models, steer.ModelCapacity{Name: modelNameOf(m), Rate: c, Ready: c / workerTokensPerSecond, Total: c / workerTokensPerSecond})
			}
		}
		w.input.Regions = append(w.input.Regions, region)
	}
	for m := range modelCount {
		sp.Models = append(sp.Models, spec.Model{Name: modelNameOf(m)})
	}
	for i := range w.services {
		s := &w.services[i]
		svc := spec.Service{Name: serviceNameOf(i), Mode: "latency", Models: []string{modelNameOf(s.model)}}
		for _, r := range s.allowed {
			svc.Regions = append(svc.Regions, w.places[r].Name)
		}
		sp.Services = append(sp.Services, svc)
	}
	w.input.Spec, w.input.SpecVersion = sp, 1
}

func modelNameOf(m int) string { return fmt.Sprintf("m%02d", m) }

func serviceNameOf(i int) string { return fmt.Sprintf("s%03d.example.", i) }

// demandAt is the demand of a service's clients in a cell, interpolated between the middles of the trace's windows.
func (s *modelService) demandAt(cell int, now time.Duration) float64 {
	list := s.demand[cell]
	x := float64(now)/float64(load.RateWindow) - 0.5
	i := int(math.Floor(x))
	part := x - float64(i)
	n := len(list)
	return list[(i%n+n)%n]*(1-part) + list[((i+1)%n+n)%n]*part
}

// setDemand sets the demand of a time.
func (w *demandModel) setDemand(now time.Duration) {
	w.input.Demand = w.input.Demand[:0]
	for i := range w.services {
		s := &w.services[i]
		for c := range w.places {
			if d := s.demandAt(c, now); d > 0 {
				w.input.Demand = append(w.input.Demand, steer.CellDemand{Service: serviceNameOf(i), Model: modelNameOf(s.model), Cell: w.places[c].Name, Rate: d})
			}
		}
	}
}
