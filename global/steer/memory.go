package steer

import "slices"

// Memory is what a planner keeps from one Solve to the next: how each model's demand was assigned. The next assignment
// begins there and is as good, for a part of the work; a plan in force is no place to begin where a service has several
// models, since it holds the mean of what they would wish. It belongs to whoever solves. The zero Memory is ready.
type Memory struct {
	regions []string
	kinds   map[memoryKey]int32
	models  map[string]*assigned
	round   uint64
}

// maxRemembered bounds a Memory, in numbers of eight bytes. What is over it is solved from the plan in force.
const maxRemembered = 4 << 20

// memoryKey is a kind whatever the order of cells.
type memoryKey struct {
	cell            string
	allowed         Set
	canary          string
	session, prefix int
}

// assigned is how one model's clients were last shared out over regions, and nowhere.
type assigned struct {
	rows  map[int32][]float64 // by kind; parts of the client's demand
	round uint64
}

// begin makes a Memory ready for a problem. It forgets all when the regions are others, and now and then what has not
// been asked for any more.
func (m *Memory) begin(p *problem) {
	names := make([]string, p.regions())
	for r := range names {
		names[r] = p.in.Spec.Regions[r].Name
	}
	if m.round++; m.kinds == nil || !slices.Equal(names, m.regions) || len(m.kinds) > 2*len(p.units)+16 {
		*m = Memory{regions: names, kinds: map[memoryKey]int32{}, models: map[string]*assigned{}, round: m.round}
	}
	for name, a := range m.models {
		if m.round-a.round > 100 {
			delete(m.models, name)
		}
	}
	for i := range p.units {
		u := &p.units[i]
		svc := &p.in.Spec.Services[u.svc]
		key := memoryKey{allowed: p.allowed[u.svc], canary: svc.Canary.Region, session: svc.SessionTokens, prefix: svc.PrefixTokens}
		if u.cell >= 0 {
			key.cell = p.in.Cells[u.cell].Name
		}
		id, known := m.kinds[key]
		if !known {
			id = int32(len(m.kinds))
			m.kinds[key] = id
		}
		u.kind = id
	}
}

// recall is where a model's clients were; nil when too many are new.
func (m *Memory) recall(p *problem, model string, g *buyers, mk *market) []float64 {
	a := m.models[model]
	if a == nil {
		return nil
	}
	x, missed := make([]float64, len(mk.demand)*mk.regions), 0
	for c, demand := range mk.demand {
		row := a.rows[p.units[g.first[c]].kind]
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

// remember notes where a model's clients are.
func (m *Memory) remember(p *problem, model string, g *buyers, mk *market, x []float64) {
	if len(mk.demand)*mk.regions*max(len(p.models), 1) > maxRemembered {
		return
	}
	a := m.models[model]
	if a == nil || len(a.rows) > 2*len(mk.demand)+16 {
		a = &assigned{rows: make(map[int32][]float64, len(mk.demand))}
		m.models[model] = a
	}
	a.round = m.round
	for c, demand := range mk.demand {
		kind := p.units[g.first[c]].kind
		row := a.rows[kind]
		if row == nil {
			row = make([]float64, mk.regions)
			a.rows[kind] = row
		}
		for r := range row {
			row[r] = x[c*mk.regions+r] / demand
		}
	}
}
