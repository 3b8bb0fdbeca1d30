package steer

import "sort"

// Bounds of one plan. A plan that would not fit keeps the rows with the most demand.
const (
	MaxRows    = 8192
	MaxEncoded = 64 << 10 // bytes; every node of the planet gets every plan
	WeightSum  = 256      // what the weights of a row add up to
)

// Plan is the leader's steering table: what cannot be told from distance alone. It is immutable once made.
type Plan struct {
	// SpecVersion is the spec that the plan was made for.
	SpecVersion uint64 `json:"spec"`
	// Regions are the names that Share.Region counts in.
	Regions []string `json:"regions"`
	// Without lists the regions that were drained or lost when the plan was made, in ascending order. Rows are not
	// used while one of them is well again, so that its return does not wait for the next plan.
	Without []string `json:"without,omitempty"`
	// Ramp is what regions on their way back may get, in 256ths, in the order of Regions; 0 means all of it. Nil: none
	// is. Rows and prices of mode "latency" follow it already; the other modes thin out their clients by it.
	Ramp []uint8 `json:"ramp,omitempty"`
	// Services in ascending order of Name.
	Services []Service `json:"services"`
}

// Service is one service's part of a plan.
type Service struct {
	Name string `json:"name"`
	// Wait is the predicted queue wait by region, in seconds.
	Wait []float64 `json:"wait"`
	// Price is what a full region adds by region, in seconds: the regret of the last client that it kept out.
	Price []float64 `json:"price"`
	// Spread serves clients of no known place, by capacity or by the service's own weights.
	Spread []Share `json:"spread"`
	// Rows in ascending order of Cell: the cells that do not simply go to the cheapest region.
	Rows []Row `json:"rows,omitempty"`
}

// Row splits one cell's clients among regions: first by Pins, in ascending order of Network, and all others by Shares.
type Row struct {
	Cell   string  `json:"cell"`
	Shares []Share `json:"shares"`
	Pins   []Pin   `json:"pins,omitempty"`
}

// Share is one region's part; the weights of a row add up to WeightSum.
type Share struct {
	Region uint16 `json:"r"`
	Weight uint16 `json:"w"`
}

// Service returns the part of that name, or nil.
func (p *Plan) Service(name string) *Service {
	if p == nil {
		return nil
	}
	i := sort.Search(len(p.Services), func(i int) bool { return p.Services[i].Name >= name })
	if i < len(p.Services) && p.Services[i].Name == name {
		return &p.Services[i]
	}
	return nil
}

// row returns a cell's row, or nil when it has none.
func (s *Service) row(cell string) *Row {
	i := sort.Search(len(s.Rows), func(i int) bool { return s.Rows[i].Cell >= cell })
	if i < len(s.Rows) && s.Rows[i].Cell == cell {
		return &s.Rows[i]
	}
	return nil
}
