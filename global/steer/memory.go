package steer

import (
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// SolverMemory is what a planner keeps between calls of SolvePlan: the last assignment of each model's demand.
// Starting from it gives the same quality for less work. The plan in force is no such start where a service has
// several models, since it holds the mean of their assignments. It belongs to one planner. The zero SolverMemory is
// ready.
type SolverMemory struct {
	regions []string
	classes map[memoryClassKey]int32
	models  map[string]*modelAssignment
	round   uint64
}

// maxMemoryNumbers bounds a SolverMemory, in float64 values. Models beyond it are solved from the plan in force.
const maxMemoryNumbers = 4 << 20

// memoryClassKey identifies a client class independently of the order of cells.
type memoryClassKey struct {
	cell                        string
	allowed                     RegionSet
	canary                      string
	sessionTokens, prefixTokens int
}

// modelAssignment is the last assignment of one model's clients to regions, including the unserved one.
type modelAssignment struct {
	sharesByClass map[int32][]float64 // by class; fractions of the client's demand
	lastRound     uint64
}

// prepareFor prepares the memory for a problem and sets the units' classes. It is cleared when the regions have
// changed, and now and then drops entries that were not used.
func (m *SolverMemory) prepareFor(regions []spec.Region, units []demandUnit) {
	names := make([]string, len(regions))
	for r := range names {
		names[r] = regions[r].Name
	}
	if m.round++; m.classes == nil || !slices.Equal(names, m.regions) || len(m.classes) > 2*len(units)+16 {
		*m = SolverMemory{regions: names, classes: map[memoryClassKey]int32{}, models: map[string]*modelAssignment{}, round: m.round}
	}
	for name, a := range m.models {
		if m.round-a.lastRound > 100 {
			delete(m.models, name)
		}
	}
	for i := range units {
		u := &units[i]
		svc := u.service
		key := memoryClassKey{allowed: svc.allowed, canary: svc.Canary.Region, sessionTokens: svc.SessionTokens, prefixTokens: svc.PrefixTokens}
		if u.cell != nil {
			key.cell = u.cell.Name
		}
		id, known := m.classes[key]
		if !known {
			id = int32(len(m.classes))
			m.classes[key] = id
		}
		u.class = id
	}
}

// lastAssignment is the last assignment of a model's clients; nil when too many are new.
func (m *SolverMemory) lastAssignment(model string, g *modelClients, mk *transportProblem) []float64 {
	a := m.models[model]
	if a == nil {
		return nil
	}
	x, missed := make([]float64, len(mk.demand)*mk.regions), 0
	for c, demand := range mk.demand {
		row := a.sharesByClass[g.firstUnits[c].class]
		if row == nil {
			missed++
			continue
		}
		for r, part := range row {
			x[c*mk.regions+r] = part * demand
		}
	}
	if missed*10 > len(mk.demand) {
		return nil
	}
	return x
}

// storeAssignment stores the assignment of the clients of one of models, unless all of them together would be too
// large.
func (m *SolverMemory) storeAssignment(model string, models int, g *modelClients, mk *transportProblem, x []float64) {
	if len(mk.demand)*mk.regions*max(models, 1) > maxMemoryNumbers {
		return
	}
	a := m.models[model]
	if a == nil || len(a.sharesByClass) > 2*len(mk.demand)+16 {
		a = &modelAssignment{sharesByClass: make(map[int32][]float64, len(mk.demand))}
		m.models[model] = a
	}
	a.lastRound = m.round
	for c, demand := range mk.demand {
		kind := g.firstUnits[c].class
		row := a.sharesByClass[kind]
		if row == nil {
			row = make([]float64, mk.regions)
			a.sharesByClass[kind] = row
		}
		for r := range row {
			row[r] = x[c*mk.regions+r] / demand
		}
	}
}
