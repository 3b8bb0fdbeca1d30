package steer

import (
	"cmp"
	"errors"
	"fmt"
)

// maxSeconds bounds a wait or a price: beyond it a region is simply last.
const maxSeconds = 3600

// Check guards the step from one plan to the next wherever plans are accepted, so that no path around the planner can
// take a name off the air. prev may be empty.
func Check(prev, next []byte) error { return CheckBy(Decode, prev, next) }

// CheckBy is Check with a decode that may remember what it has read.
func CheckBy(decode func([]byte) (*Plan, error), prev, next []byte) error {
	n, err := decode(next)
	if err != nil {
		return err
	}
	if len(n.Services) == 0 {
		return errors.New("plan serves no service at all")
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
		if n.Service(p.Services[i].Name) == nil {
			return fmt.Errorf("plan drops service %s without a change of spec", p.Services[i].Name)
		}
	}
	return nil
}

func (p *Plan) valid() error {
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
		if err := s.valid(len(p.Regions)); err != nil {
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

func (s *Service) valid(regions int) error {
	if len(s.Wait) != regions || len(s.Price) != regions {
		return fmt.Errorf("has %d waits and %d prices for %d regions", len(s.Wait), len(s.Price), regions)
	}
	for r := range s.Wait {
		if !seconds(s.Wait[r]) || !seconds(s.Price[r]) {
			return fmt.Errorf("wait or price of region %d is out of range", r)
		}
	}
	if err := sharesValid(s.Spread, regions, WeightSum); err != nil {
		return fmt.Errorf("spread: %w", err)
	}
	for i := range s.Rows {
		if i > 0 && s.Rows[i-1].Cell >= s.Rows[i].Cell {
			return errors.New("rows are out of order")
		}
		if err := cmp.Or(sharesValid(s.Rows[i].Shares, regions, WeightSum), pinsValid(s.Rows[i].Pins, regions)); err != nil {
			return fmt.Errorf("cell %s: %w", s.Rows[i].Cell, err)
		}
	}
	return nil
}

// seconds also refuses NaN, which compares false with everything.
func seconds(v float64) bool { return v >= 0 && v <= maxSeconds }

// sharesValid holds the rule that matters most: nobody is ever sent nowhere. whole is what the weights must add up to.
func sharesValid(shares []Share, regions, whole int) error {
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
