package steer

import "sort"

// Bounds of one plan. A plan that exceeds them keeps the rows with the most demand.
const (
	MaxRows         = 8192
	MaxEncodedBytes = 64 << 10 // bytes; every node of the fleet receives every plan
	WeightSum       = 256      // what the weights of a row add up to
)

// Plan is the leader's steering table: what does not follow from distance alone. It is immutable.
type Plan struct {
	// SpecVersion is the spec that the plan was made for.
	SpecVersion uint64 `json:"spec"`
	// Regions are the names that RegionShare.Region indexes.
	Regions []string `json:"regions"`
	// Without lists the regions that were drained or unavailable when the plan was made, in ascending order. Rows are
	// not used while one of them is available again, so that its return does not wait for the next plan.
	Without []string `json:"without,omitempty"`
	// Ramp is the fraction that returning regions may get, in 256ths, in the order of Regions; 0 means all of it.
	// nil: no region is returning. Rows and prices of mode "latency" include it already; the other modes reduce their
	// clients by it.
	Ramp []uint8 `json:"ramp,omitempty"`
	// Services in ascending order of Name.
	Services []ServicePlan `json:"services"`
}

// ServicePlan is one service's part of a plan.
type ServicePlan struct {
	Name string `json:"name"`
	// Wait is the predicted queue wait by region, in seconds.
	Wait []float64 `json:"wait"`
	// Price is what a full region adds by region, in seconds: the value of its capacity to the last client that it
	// excluded.
	Price []float64 `json:"price"`
	// Spread serves clients without a location, by capacity or by the service's own weights.
	Spread []RegionShare `json:"spread"`
	// Rows in ascending order of Cell: the cells that do not go to the cheapest region.
	Rows []CellRow `json:"rows,omitempty"`
}

// CellRow splits one cell's clients among regions: first by Pins, in ascending order of Network, then all others by
// Shares.
type CellRow struct {
	Cell   string        `json:"cell"`
	Shares []RegionShare `json:"shares"`
	Pins   []Pin         `json:"pins,omitempty"`
}

// RegionShare is one region's part; the weights of a row add up to WeightSum.
type RegionShare struct {
	Region uint16 `json:"r"`
	Weight uint16 `json:"w"`
}

// FindService returns the part of the service, or nil.
func (p *Plan) FindService(name string) *ServicePlan {
	if p == nil {
		return nil
	}
	i := sort.Search(len(p.Services), func(i int) bool { return p.Services[i].Name >= name })
	if i < len(p.Services) && p.Services[i].Name == name {
		return &p.Services[i]
	}
	return nil
}

// findRow returns a cell's row, or nil.
func (s *ServicePlan) findRow(cell string) *CellRow {
	i := sort.Search(len(s.Rows), func(i int) bool { return s.Rows[i].Cell >= cell })
	if i < len(s.Rows) && s.Rows[i].Cell == cell {
		return &s.Rows[i]
	}
	return nil
}
