package steer

import (
	"cmp"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Geography is the distance of each cell from each region by one node's databases. It is immutable and shared by
// every Table until the spec or the databases change.
type Geography struct {
	Regions int
	RTT     []float32 // seconds, by cell, then region
	index   map[string]int32
	namesID *int // identifies names, which are not comparable
}

// NewGeography makes a Geography from names (by cell id) and a matrix of len(names) rows with one value per region. A
// row that starts with NaN is a cell without a known network.
func NewGeography(regions int, names []string, rtt []float32) *Geography {
	g := &Geography{Regions: regions, RTT: rtt, index: make(map[string]int32, len(names)), namesID: new(int)}
	for i, n := range names {
		if n != "" {
			g.index[n] = int32(i)
		}
	}
	return g
}

// NumCells is the number of cells.
func (g *Geography) NumCells() int {
	if g == nil || g.Regions == 0 {
		return 0
	}
	return len(g.RTT) / g.Regions
}

func (g *Geography) findCell(name string) (id int32, ok bool) {
	if g == nil {
		return 0, false
	}
	id, ok = g.index[name]
	return id, ok
}

// RTTRow is a cell's RTT by region, in seconds; nil for an unknown cell.
func (g *Geography) RTTRow(cell int32) []float32 {
	if cell < 0 || int(cell) >= g.NumCells() {
		return nil
	}
	row := g.RTT[int(cell)*g.Regions : (int(cell)+1)*g.Regions]
	if row[0] != row[0] {
		return nil
	}
	return row
}

// WithRows returns a Geography in which some cells have other rows, such as measured ones, in seconds by region. Rows
// of unknown cells or of another length are ignored. It shares names with g, which is unchanged.
func (g *Geography) WithRows(rows map[int32][]float32) *Geography {
	out := *g
	out.RTT = slices.Clone(g.RTT)
	for cell, row := range rows {
		if old := out.RTTRow(cell); old != nil && len(row) == len(old) {
			copy(old, row)
		}
	}
	return &out
}

type steeringMode uint8

const (
	modeLatency steeringMode = iota
	modeGeo
	modeWeighted
	modeFailover
)

func parseMode(s string) steeringMode {
	switch s {
	case "geo":
		return modeGeo
	case "weighted":
		return modeWeighted
	case "failover":
		return modeFailover
	}
	return modeLatency
}

// Table is a Plan compiled for picking on one node: names are indexes, cells are ids. It is immutable.
type Table struct {
	geo      *Geography
	services []serviceTable
}

type serviceTable struct {
	mode        steeringMode
	seed        uint64
	allowed     RegionSet
	order       []uint16
	bias        []float64 // seconds, by region
	stretch     []float64 // factor of the RTT, by region
	wait        []float64 // seconds, by region; from the plan
	price       []float64 // seconds, by region
	spread      []RegionShare
	rows        []rowTable
	rowIndexes  map[int32]int32 // cell to index in rows; tables share it
	indexedRows []CellRow       // the rows that rowIndexes was built from
	without     RegionSet       // regions that the rows exclude
	canary      int             // region that takes a fixed fraction of the clients; -1 for none
	canaryShare float64
	pilotLight  bool    // spread holds the parts of the regions of the failover order
	ramp        []uint8 // fraction that returning regions may get, in 256ths, 0 for all; nil: no region is returning
}

// CompileTable combines spec, geography and plan. plan may be nil, and may be of an older spec: what it contains for
// names that still exist applies.
func CompileTable(s *spec.Spec, g *Geography, plan *Plan) *Table {
	return RecompileTable(nil, s, g, plan)
}

// RecompileTable is CompileTable, and cheaper if the plan has rows for the same cells as that of prev, which may be
// nil: the index from cells to rows is then shared.
func RecompileTable(prev *Table, s *spec.Spec, g *Geography, plan *Plan) *Table {
	t := &Table{geo: g, services: make([]serviceTable, len(s.Services))}
	for i := range s.Services {
		st := newServiceTable(s, &s.Services[i])
		if ps := plan.FindService(s.Services[i].Name); ps != nil {
			st.applyPlan(planToSpecRegions(s, plan), plan, ps)
			st.indexRows(g, ps.Rows, previousService(prev, i, g))
			st.pilotLight = st.mode == modeFailover && s.Services[i].MinWarm > 0 && len(st.spread) > 0
		}
		if len(st.spread) == 0 || st.mode == modeWeighted {
			st.spread = declaredSpread(s, &s.Services[i], st.allowed)
		}
		t.services[i] = st
	}
	return t
}

func newServiceTable(s *spec.Spec, svc *spec.Service) serviceTable {
	n := len(s.Regions)
	st := serviceTable{
		mode: parseMode(svc.Mode), seed: hashString(svc.Name), allowed: allowedRegions(s, svc), order: failoverOrder(s, svc),
		bias: make([]float64, n), stretch: make([]float64, n), wait: make([]float64, n), price: make([]float64, n),
		canary: -1,
	}
	for r := range s.Regions {
		st.bias[r], st.stretch[r] = operatorBias(s, svc, r), rttStretch(&s.Regions[r])
	}
	if c := regionIndex(s, svc.Canary.Region); c >= 0 && c < MaxRegions && svc.Canary.Share > 0 && svc.Canary.Share < 1 {
		st.canary, st.canaryShare = c, svc.Canary.Share
	}
	return st
}

// planToSpecRegions maps a plan's region indexes to the spec's; -1 for one that is gone.
func planToSpecRegions(s *spec.Spec, plan *Plan) []int {
	out := make([]int, len(plan.Regions))
	for i, name := range plan.Regions {
		out[i] = regionIndex(s, name)
	}
	return out
}

func (st *serviceTable) applyPlan(to []int, plan *Plan, ps *ServicePlan) {
	for i, r := range to {
		if r < 0 || r >= MaxRegions {
			continue
		}
		st.wait[r], st.price[r] = ps.Wait[i], ps.Price[i]
		if containsName(plan.Without, plan.Regions[i]) {
			st.without.Add(r)
		}
		if i < len(plan.Ramp) && plan.Ramp[i] > 0 && st.mode != modeLatency {
			if st.ramp == nil {
				st.ramp = make([]uint8, len(st.bias))
			}
			st.ramp[r] = plan.Ramp[i]
		}
	}
	st.spread = remapShares(ps.Spread, to)
	st.rows = make([]rowTable, len(ps.Rows))
	same := isIdentity(to)
	for i := range ps.Rows {
		shares := ps.Rows[i].Shares // the plan's own slice: both are immutable
		if !same {
			shares = remapShares(shares, to)
		}
		if len(shares) > 0 {
			st.rows[i] = rowTable{shares, buildPins(ps.Rows[i].Pins, to)}
		}
	}
}

// indexRows builds the index from cells to rows. Rows of unknown cells are not used.
func (st *serviceTable) indexRows(g *Geography, rows []CellRow, before *serviceTable) {
	st.indexedRows = rows
	if before != nil && slices.EqualFunc(before.indexedRows, rows, haveSameCell) {
		st.rowIndexes = before.rowIndexes
		return
	}
	st.rowIndexes = make(map[int32]int32, len(rows))
	for i := range rows {
		if cell, known := g.findCell(rows[i].Cell); known {
			st.rowIndexes[cell] = int32(i)
		}
	}
}

// previousService is the service of table t at an index, if the table's cells are those of g; else nil.
func previousService(t *Table, service int, g *Geography) *serviceTable {
	if t == nil || t.geo == nil || g == nil || t.geo.namesID == nil || t.geo.namesID != g.namesID || service >= len(t.services) {
		return nil
	}
	return &t.services[service]
}

func haveSameCell(a, b CellRow) bool { return a.Cell == b.Cell }

// isIdentity reports whether a plan's region indexes equal the spec's.
func isIdentity(to []int) bool {
	for i, r := range to {
		if i != r || i >= MaxRegions {
			return false
		}
	}
	return true
}

// findRow is a cell's row; an empty one if the plan has none.
func (st *serviceTable) findRow(cell int32) *rowTable {
	if i, ok := st.rowIndexes[cell]; ok {
		return &st.rows[i]
	}
	return &emptyRow
}

var emptyRow rowTable

// rowTable is a row compiled for picking.
type rowTable struct {
	shares []RegionShare
	pins   []pinnedNetwork // in ascending order of key
}

type pinnedNetwork struct {
	key    uint64
	region int
}

func buildPins(pins []Pin, to []int) (out []pinnedNetwork) {
	for _, p := range pins {
		if r := to[p.Region]; r >= 0 && r < MaxRegions {
			out = append(out, pinnedNetwork{mixBits(p.Network), r})
		}
	}
	slices.SortFunc(out, func(a, b pinnedNetwork) int { return cmp.Compare(a.key, b.key) })
	return out
}

// pinnedRegion is the region that the key's network is pinned to, or -1.
func pinnedRegion(pins []pinnedNetwork, key uint64) int {
	lo, hi := 0, len(pins)
	for lo < hi {
		mid := (lo + hi) / 2
		if pins[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(pins) && pins[lo].key == key {
		return pins[lo].region
	}
	return -1
}

func remapShares(shares []RegionShare, to []int) []RegionShare {
	var out []RegionShare
	for _, s := range shares {
		if r := to[s.Region]; r >= 0 && r < MaxRegions {
			out = append(out, RegionShare{Region: uint16(r), Weight: s.Weight})
		}
	}
	return out
}

// declaredSpread is the service's own weights, or an even spread over the regions that may answer.
func declaredSpread(s *spec.Spec, svc *spec.Service, may RegionSet) []RegionShare {
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
	return quantiseShares(parts)
}
