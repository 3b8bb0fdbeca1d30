package steering

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

const (
	// Models that the clients are dealt to, and how many of them are bound to the continent of whoever asks.
	Models, Resident = 50, 10
	// perWorker is what one worker makes, in tokens/s, and aimed the part of its workers that a model's peak is to use.
	perWorker, aimed = 5000.0, 0.7
)

// Place is a region with the continent that residency is about.
type Place struct {
	Name, Continent string
	Lat, Lon        float64
}

// World is who asks for what, and what there is.
type World struct {
	places   []Place
	in       steer.Input
	services []service
	capacity [][]float64 // model, region; tokens/s
	windows  int
}

// service is a model as the clients of one continent, or of all, ask for it.
type service struct {
	model   int
	allowed []int       // regions
	demand  [][]float64 // cell, window; tokens/s
}

// NewWorld deals the clients out. Capacity is what the first half of the trace asks for at its peak, where it asks for it.
func NewWorld(places []Place, clients []load.ClientRate) (*World, error) {
	if len(clients) == 0 || len(places) == 0 {
		return nil, fmt.Errorf("%d clients in %d places: a world needs some of both", len(clients), len(places))
	}
	w := &World{places: places, windows: len(clients[0].Tokens), capacity: make([][]float64, Models)}
	w.serve()
	for i := range clients {
		c := &clients[i]
		s := w.service(int(c.ID%Models), int(c.Region))
		for t, tokens := range c.Tokens[:min(len(c.Tokens), w.windows)] {
			s.demand[c.Region][t] += tokens
		}
	}
	w.build()
	w.declare()
	return w, nil
}

// serve makes the services, the first of the models in one for each continent.
func (w *World) serve() {
	var continents []string
	for _, p := range w.places {
		if !slices.Contains(continents, p.Continent) {
			continents = append(continents, p.Continent)
		}
	}
	add := func(model int, continent string) {
		s := service{model: model, demand: make([][]float64, len(w.places))}
		for r, p := range w.places {
			s.demand[r] = make([]float64, w.windows)
			if continent == "" || p.Continent == continent {
				s.allowed = append(s.allowed, r)
			}
		}
		w.services = append(w.services, s)
	}
	for m := range Models {
		if m >= Resident {
			add(m, "")
			continue
		}
		for _, c := range continents {
			add(m, c)
		}
	}
}

func (w *World) service(model, region int) *service {
	i := slices.IndexFunc(w.services, func(s service) bool { return s.model == model && slices.Contains(s.allowed, region) })
	return &w.services[i]
}

// build puts workers where the first half of the trace asks for them.
func (w *World) build() {
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
		for range int(math.Ceil(peak / aimed / perWorker)) {
			// The next worker goes where demand is least covered.
			best := slices.MaxFunc(s.allowed, func(a, b int) int {
				return cmp.Compare(mean[a]/(w.capacity[s.model][a]+perWorker), mean[b]/(w.capacity[s.model][b]+perWorker))
			})
			w.capacity[s.model][best] += perWorker
		}
	}
}

// declare writes the planner's input, but for demand.
func (w *World) declare() {
	sp := &spec.Spec{Steering: spec.Steering{Interval: spec.Duration(time.Second), DeadBand: 0.05, MaxStep: 0.25, MinShift: 0.02, Slew: 0.25}}
	for r, p := range w.places {
		sp.Regions = append(sp.Regions, spec.Region{Name: p.Name, MaxShare: 0.85})
		cell := steer.Cell{Name: p.Name}
		for _, q := range w.places {
			cell.RTT = append(cell.RTT, float32(geo.RTT(geo.Place{Lat: p.Lat, Lon: p.Lon}, geo.Place{Lat: q.Lat, Lon: q.Lon}).Seconds()))
		}
		w.in.Cells = append(w.in.Cells, cell)
		region := steer.Region{}
		for m := range Models {
			if c := w.capacity[m][r]; c > 0 {
				region.Models = append(region.Models, steer.Model{Name: modelName(m), Rate: c, Ready: c / perWorker, Total: c / perWorker})
			}
		}
		w.in.Regions = append(w.in.Regions, region)
	}
	for m := range Models {
		sp.Models = append(sp.Models, spec.Model{Name: modelName(m)})
	}
	for i := range w.services {
		s := &w.services[i]
		svc := spec.Service{Name: serviceNameOf(i), Mode: "latency", Models: []string{modelName(s.model)}}
		for _, r := range s.allowed {
			svc.Regions = append(svc.Regions, w.places[r].Name)
		}
		sp.Services = append(sp.Services, svc)
	}
	w.in.Spec, w.in.SpecVersion = sp, 1
}

func modelName(m int) string { return fmt.Sprintf("m%02d", m) }

func serviceNameOf(i int) string { return fmt.Sprintf("s%03d.example.", i) }

// at is the demand of a service's clients in a cell, between the middles of the trace's windows.
func (s *service) at(cell int, now time.Duration) float64 {
	list := s.demand[cell]
	x := float64(now)/float64(load.RateWindow) - 0.5
	i := int(math.Floor(x))
	part := x - float64(i)
	n := len(list)
	return list[(i%n+n)%n]*(1-part) + list[((i+1)%n+n)%n]*part
}

// ask sets the demand of a moment.
func (w *World) ask(now time.Duration) {
	w.in.Demand = w.in.Demand[:0]
	for i := range w.services {
		s := &w.services[i]
		for c := range w.places {
			if d := s.at(c, now); d > 0 {
				w.in.Demand = append(w.in.Demand, steer.Demand{Service: serviceNameOf(i), Model: modelName(s.model), Cell: w.places[c].Name, Rate: d})
			}
		}
	}
}
