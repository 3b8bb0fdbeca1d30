package steer

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
)

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

// maxWaitSeconds bounds a wait or a price. A region beyond it would be last in any case.
const maxWaitSeconds = 3600

// CheckPlan checks the step from one plan to the next. Every path that accepts a plan calls it, so that none can
// remove a service. prev may be empty.
func CheckPlan(prev, next []byte) error { return CheckPlanWith(DecodePlan, prev, next) }

// CheckPlanWith is CheckPlan with a decode function that may cache.
func CheckPlanWith(decode func([]byte) (*Plan, error), prev, next []byte) error {
	n, err := decode(next)
	if err != nil {
		return err
	}
	if len(n.Services) == 0 {
		return errors.New("plan has no service")
	}
	p, err := decode(prev)
	if len(prev) == 0 || err != nil {
		return nil // nothing to compare with
	}
	if n.SpecVersion < p.SpecVersion {
		return fmt.Errorf("plan is for spec %d, and one for spec %d is in force", n.SpecVersion, p.SpecVersion)
	}
	if n.SpecVersion > p.SpecVersion {
		return nil // the spec itself may drop a service
	}
	for i := range p.Services {
		if n.FindService(p.Services[i].Name) == nil {
			return fmt.Errorf("plan drops service %s without a change of spec", p.Services[i].Name)
		}
	}
	return nil
}

func (p *Plan) validatePlan() error {
	if len(p.Regions) == 0 || len(p.Regions) > MaxRegions {
		return fmt.Errorf("plan has %d regions, want 1 to %d", len(p.Regions), MaxRegions)
	}
	if len(p.Ramp) != 0 && len(p.Ramp) != len(p.Regions) {
		return fmt.Errorf("plan has %d ramps for %d regions", len(p.Ramp), len(p.Regions))
	}
	rows, pins := 0, 0
	for i := range p.Services {
		s := &p.Services[i]
		if i > 0 && p.Services[i-1].Name >= s.Name {
			return errors.New("services are out of order")
		}
		if err := s.validateService(len(p.Regions)); err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		rows += len(s.Rows)
		for k := range s.Rows {
			pins += len(s.Rows[k].Pins)
		}
	}
	if pins > MaxPins {
		return fmt.Errorf("plan has %d pins, over the limit of %d", pins, MaxPins)
	}
	if rows > MaxRows {
		return fmt.Errorf("plan has %d rows, over the limit of %d", rows, MaxRows)
	}
	return nil
}

func (s *ServicePlan) validateService(regions int) error {
	if len(s.Wait) != regions || len(s.Price) != regions {
		return fmt.Errorf("has %d waits and %d prices for %d regions", len(s.Wait), len(s.Price), regions)
	}
	for r := range s.Wait {
		if !isValidSeconds(s.Wait[r]) || !isValidSeconds(s.Price[r]) {
			return fmt.Errorf("wait or price of region %d is out of range", r)
		}
	}
	if err := validateShares(s.Spread, regions, WeightSum); err != nil {
		return fmt.Errorf("spread: %w", err)
	}
	for i := range s.Rows {
		if i > 0 && s.Rows[i-1].Cell >= s.Rows[i].Cell {
			return errors.New("rows are out of order")
		}
		if err := cmp.Or(validateShares(s.Rows[i].Shares, regions, WeightSum), validatePins(s.Rows[i].Pins, regions)); err != nil {
			return fmt.Errorf("cell %s: %w", s.Rows[i].Cell, err)
		}
	}
	return nil
}

// isValidSeconds reports whether v is in range. NaN is not: it compares false with everything.
func isValidSeconds(v float64) bool { return v >= 0 && v <= maxWaitSeconds }

// validateShares checks that every client is sent to some region. whole is the required sum of the weights.
func validateShares(shares []RegionShare, regions, whole int) error {
	sum := 0
	for i, s := range shares {
		if int(s.Region) >= regions || s.Weight == 0 {
			return fmt.Errorf("share %d is for region %d with weight %d", i, s.Region, s.Weight)
		}
		if i > 0 && shares[i-1].Region >= s.Region {
			return errors.New("shares are out of order")
		}
		sum += int(s.Weight)
	}
	if sum != whole {
		return fmt.Errorf("weights add up to %d, want %d", sum, whole)
	}
	return nil
}

// validatePins checks that pins refer to regions and can be encoded.
func validatePins(pins []Pin, regions int) error {
	if len(pins) > maxRowPins {
		return fmt.Errorf("has %d pins, over the limit of %d", len(pins), maxRowPins)
	}
	for i, p := range pins {
		if int(p.Region) >= regions {
			return fmt.Errorf("pin %d is for region %d", i, p.Region)
		}
		if i > 0 && pins[i-1].Network >= p.Network {
			return errors.New("pins are out of order")
		}
	}
	return nil
}
