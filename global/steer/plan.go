package steer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sort"
)

// Bounds of one plan. A plan that would not fit keeps the rows with the most demand.
const (
	MaxRows    = 4096
	MaxEncoded = 500 << 10 // bytes; the Raft log takes entries up to 512 KiB
	WeightSum  = 10000     // what the weights of a row add up to
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

// Row splits one cell's clients among regions.
type Row struct {
	Cell   string  `json:"cell"`
	Shares []Share `json:"shares"`
}

// Share is one region's part; the weights of a row add up to WeightSum.
type Share struct {
	Region uint16 `json:"r"`
	Weight uint16 `json:"w"`
}

// Encode writes the plan for the Raft log.
func Encode(p *Plan) ([]byte, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding a plan: %w", err)
	}
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("plan is %d bytes, over the limit of %d", len(b), MaxEncoded)
	}
	return b, nil
}

// Decode reads a plan and refuses one that no Solve could have made.
func Decode(b []byte) (*Plan, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("plan is %d bytes, over the limit of %d", len(b), MaxEncoded)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := new(Plan)
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("decoding a plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("decoding a plan: bytes follow its end")
	}
	if err := p.valid(); err != nil {
		return nil, fmt.Errorf("decoding a plan: %w", err)
	}
	return p, nil
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

// row returns the shares of a cell, or nil when it has no row.
func (s *Service) row(cell string) []Share {
	i := sort.Search(len(s.Rows), func(i int) bool { return s.Rows[i].Cell >= cell })
	if i < len(s.Rows) && s.Rows[i].Cell == cell {
		return s.Rows[i].Shares
	}
	return nil
}
