package steer

import (
	"cmp"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Geography is how far each cell is from each region, as one node's databases have it. It is immutable and shared by
// every Table until the spec or the databases change.
type Geography struct {
	Regions int
	RTT     []float32 // seconds, cell by cell, Regions values for each
	index   map[string]int32
	names   *int // stands for index, which is not comparable
}

// NewGeography lays out names (by cell id) and a matrix of len(names) rows with regions values each. A row that starts
// with NaN is a cell that no network is known to lie in.
func NewGeography(regions int, names []string, rtt []float32) *Geography {
	g := &Geography{Regions: regions, RTT: rtt, index: make(map[string]int32, len(names)), names: new(int)}
	for i, n := range names {
		if n != "" {
			g.index[n] = int32(i)
		}
	}
	return g
}

// Cells is how many cells there are.
func (g *Geography) Cells() int {
	if g == nil || g.Regions == 0 {
		return 0
	}
	return len(g.RTT) / g.Regions
}

func (g *Geography) cell(name string) (id int32, ok bool) {
	if g == nil {
		return 0, false
	}
	id, ok = g.index[name]
	return id, ok
}

// Row is a cell's RTT by region, in seconds; nil for a cell that is not known.
func (g *Geography) Row(cell int32) []float32 {
	if cell < 0 || int(cell) >= g.Cells() {
		return nil
	}
	row := g.RTT[int(cell)*g.Regions : (int(cell)+1)*g.Regions]
	if row[0] != row[0] {
		return nil
	}
	return row
}

type mode uint8

const (
	byLatency mode = iota
	byPlace
	byWeight
	byOrder
)

func modeOf(s string) mode {
	switch s {
	case "geo":
		return byPlace
	case "weighted":
		return byWeight
	case "failover":
		return byOrder
	}
	return byLatency
}

// Table is a Plan made ready for picking on one node: names are indexes, cells are ids. It is immutable.
type Table struct {
	geo      *Geography
	services []serviceTable
}

type serviceTable struct {
	mode    mode
	seed    uint64
	allowed Set
	order   []uint16
	bias    []float64 // seconds, by region
	stretch []float64 // factor of the RTT, by region
	wait    []float64 // seconds, by region; what the plan knew
	price   []float64 // seconds, by region
	spread  []Share
	rows    []rowTable
	at      map[int32]int32 // cell to index in rows; tables share it
	cells   []Row           // what at was made from
	without Set             // regions that the rows do without
	canary  int             // region that takes a fixed part of the clients; -1 for none
	trial   float64
	pilot   bool    // the spread is what regions of the failover order carry
	ramp    []uint8 // what regions on their way back may get, in 256ths, 0 for all; nil: none is
}

// Compile joins spec, geography and plan. plan may be nil, and may be of an older spec: what it says about names that
// still exist holds.
func Compile(s *spec.Spec, g *Geography, plan *Plan) *Table { return Recompile(nil, s, g, plan) }

// Recompile is Compile, and cheaper where the plan has rows for the same cells as that of prev, which may be nil: what
// leads from cells to rows is then shared, and only what rows say is made anew.
func Recompile(prev *Table, s *spec.Spec, g *Geography, plan *Plan) *Table {
	t := &Table{geo: g, services: make([]serviceTable, len(s.Services))}
	for i := range s.Services {
		st := newServiceTable(s, &s.Services[i])
		if ps := plan.Service(s.Services[i].Name); ps != nil {
			st.adopt(regionMap(s, plan), plan, ps)
			st.place(g, ps.Rows, prev.before(i, g))
			st.pilot = st.mode == byOrder && s.Services[i].MinWarm > 0 && len(st.spread) > 0
		}
		if len(st.spread) == 0 || st.mode == byWeight {
			st.spread = declaredSpread(s, &s.Services[i], st.allowed)
		}
		t.services[i] = st
	}
	return t
}

func newServiceTable(s *spec.Spec, svc *spec.Service) serviceTable {
	n := len(s.Regions)
	st := serviceTable{
		mode: modeOf(svc.Mode), seed: hashString(svc.Name), allowed: allowed(s, svc), order: order(s, svc),
		bias: make([]float64, n), stretch: make([]float64, n), wait: make([]float64, n), price: make([]float64, n),
		canary: -1,
	}
	for r := range s.Regions {
		st.bias[r], st.stretch[r] = bias(s, svc, r), stretch(&s.Regions[r])
	}
	if c := regionIndex(s, svc.Canary.Region); c >= 0 && c < MaxRegions && svc.Canary.Share > 0 && svc.Canary.Share < 1 {
		st.canary, st.trial = c, svc.Canary.Share
	}
	return st
}

// regionMap leads from a plan's region indexes to the spec's; -1 for one that is gone.
func regionMap(s *spec.Spec, plan *Plan) []int {
	out := make([]int, len(plan.Regions))
	for i, name := range plan.Regions {
		out[i] = regionIndex(s, name)
	}
	return out
}

func (st *serviceTable) adopt(to []int, plan *Plan, ps *Service) {
	for i, r := range to {
		if r < 0 || r >= MaxRegions {
			continue
		}
		st.wait[r], st.price[r] = ps.Wait[i], ps.Price[i]
		if contains(plan.Without, plan.Regions[i]) {
			st.without.Add(r)
		}
		if i < len(plan.Ramp) && plan.Ramp[i] > 0 && st.mode != byLatency {
			if st.ramp == nil {
				st.ramp = make([]uint8, len(st.bias))
			}
			st.ramp[r] = plan.Ramp[i]
		}
	}
	st.spread = remap(ps.Spread, to)
	st.rows = make([]rowTable, len(ps.Rows))
	same := unmoved(to)
	for i := range ps.Rows {
		shares := ps.Rows[i].Shares // the plan's own: neither is ever changed
		if !same {
			shares = remap(shares, to)
		}
		if len(shares) > 0 {
			st.rows[i] = rowTable{shares, pinTable(ps.Rows[i].Pins, to)}
		}
	}
}

// place says which cell each row is for. Rows of cells that are not known are for nobody.
func (st *serviceTable) place(g *Geography, rows []Row, before *serviceTable) {
	st.cells = rows
	if before != nil && slices.EqualFunc(before.cells, rows, sameCell) {
		st.at = before.at
		return
	}
	st.at = make(map[int32]int32, len(rows))
	for i := range rows {
		if cell, known := g.cell(rows[i].Cell); known {
			st.at[cell] = int32(i)
		}
	}
}

// before is the part of the service of the same index, if the table's cells are those of g; else nil.
func (t *Table) before(service int, g *Geography) *serviceTable {
	if t == nil || t.geo == nil || g == nil || t.geo.names == nil || t.geo.names != g.names || service >= len(t.services) {
		return nil
	}
	return &t.services[service]
}

func sameCell(a, b Row) bool { return a.Cell == b.Cell }

// unmoved reports whether a plan counts regions as the spec does.
func unmoved(to []int) bool {
	for i, r := range to {
		if i != r || i >= MaxRegions {
			return false
		}
	}
	return true
}

// row is a cell's row; an empty one where the plan has none.
func (st *serviceTable) row(cell int32) *rowTable {
	if i, ok := st.at[cell]; ok {
		return &st.rows[i]
	}
	return &noRow
}

var noRow rowTable

// rowTable is a row made ready for picking.
type rowTable struct {
	shares []Share
	pins   []pinned // in ascending order of key
}

type pinned struct {
	key    uint64
	region int
}

func pinTable(pins []Pin, to []int) (out []pinned) {
	for _, p := range pins {
		if r := to[p.Region]; r >= 0 && r < MaxRegions {
			out = append(out, pinned{mix(p.Network), r})
		}
	}
	slices.SortFunc(out, func(a, b pinned) int { return cmp.Compare(a.key, b.key) })
	return out
}

// pinned is the region that the network of a key is pinned to, or -1.
func (r *rowTable) pinned(key uint64) int {
	lo, hi := 0, len(r.pins)
	for lo < hi {
		mid := (lo + hi) / 2
		if r.pins[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(r.pins) && r.pins[lo].key == key {
		return r.pins[lo].region
	}
	return -1
}

func remap(shares []Share, to []int) []Share {
	var out []Share
	for _, s := range shares {
		if r := to[s.Region]; r >= 0 && r < MaxRegions {
			out = append(out, Share{Region: uint16(r), Weight: s.Weight})
		}
	}
	return out
}

// declaredSpread is the service's own weights, or evenly over the regions that may answer.
func declaredSpread(s *spec.Spec, svc *spec.Service, may Set) []Share {
	parts, sum := make([]float64, len(s.Regions)), 0.0
	for r := range parts {
		if may.Has(r) {
			parts[r] = math.Max(0, svc.Weights[s.Regions[r].Name])
			sum += parts[r]
		}
	}
	for r := range parts {
		if sum == 0 && may.Has(r) {
			parts[r] = 1
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return quantise(parts)
}
