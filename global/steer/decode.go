package steer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a plan of version 1, as it may still stand in a Raft log.
const (
	maxJSON      = 500 << 10
	jsonWeights  = 10000
	maxNameBytes = 255
)

// Decode reads a plan of any version and refuses one that no Solve could have made.
func Decode(b []byte) (*Plan, error) {
	p, err := decode(b)
	if err == nil {
		err = p.valid()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a plan: %w", err)
	}
	return p, nil
}

func decode(b []byte) (*Plan, error) {
	switch {
	case len(b) > 0 && (b[0] == version2 || b[0] == version3) && len(b) > MaxEncoded:
		return nil, fmt.Errorf("it is %d bytes, over the limit of %d", len(b), MaxEncoded)
	case len(b) > 0 && (b[0] == version2 || b[0] == version3):
		r := &reader{b: b[1:], pinned: b[0] == version3}
		return r.plan()
	case len(b) > 0 && b[0] < ' ':
		return nil, fmt.Errorf("it is of version %d, and this node knows versions up to %d: upgrade it", b[0], PlanVersion)
	}
	return decodeJSON(b)
}

// decodeJSON reads version 1.
func decodeJSON(b []byte) (*Plan, error) {
	if len(b) > maxJSON {
		return nil, fmt.Errorf("it is %d bytes, over the limit of %d", len(b), maxJSON)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := new(Plan)
	if err := d.Decode(p); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("bytes follow its end")
	}
	for i := range p.Services {
		s := &p.Services[i]
		if err := rescale(&s.Spread, len(p.Regions)); err != nil {
			return nil, fmt.Errorf("service %s: spread: %w", s.Name, err)
		}
		for k := range s.Rows {
			if err := rescale(&s.Rows[k].Shares, len(p.Regions)); err != nil {
				return nil, fmt.Errorf("service %s: cell %s: %w", s.Name, s.Rows[k].Cell, err)
			}
		}
	}
	return p, nil
}

// rescale turns the weights of version 1 into today's.
func rescale(shares *[]Share, regions int) error {
	if regions > MaxRegions {
		return fmt.Errorf("%d regions are too many", regions)
	}
	if err := sharesValid(*shares, regions, jsonWeights); err != nil {
		return err
	}
	parts := make([]float64, regions)
	for _, s := range *shares {
		parts[s.Region] = float64(s.Weight)
	}
	*shares = quantise(parts)
	return nil
}

// reader reads version 2. After the first mistake it returns zeros and keeps the error.
type reader struct {
	b      []byte
	err    error
	lists  [][]Share
	cells  []string
	pinned bool
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("it ends early")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many things follow, each of which takes at least so many bytes.
func (r *reader) count(least int) int {
	n := r.number()
	if n > uint64(len(r.b)/least) {
		r.fail("it ends early")
		return 0
	}
	return int(n)
}

// index reads a number below n.
func (r *reader) index(n int) int {
	v := r.number()
	if v >= uint64(n) {
		r.fail("index %d is out of range", v)
		return 0
	}
	return int(v)
}

func (r *reader) text() string { return string(r.bytes()) }

// bytes is the plan's own memory.
func (r *reader) bytes() []byte {
	n := r.count(1)
	if n > maxNameBytes {
		r.fail("a name has %d bytes", n)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) plan() (*Plan, error) {
	p := &Plan{SpecVersion: r.number()}
	for range r.count(1) {
		p.Regions = append(p.Regions, r.text())
	}
	for range r.count(1) {
		if i := r.index(len(p.Regions)); r.err == nil {
			p.Without = append(p.Without, p.Regions[i])
		}
	}
	if n := r.count(1); n > 0 {
		p.Ramp = append([]uint8(nil), r.b[:n]...)
		r.b = r.b[n:]
	}
	r.names()
	for range r.count(3) {
		r.lists = append(r.lists, r.shares())
	}
	rows := 0
	for range r.count(3) {
		p.Services = append(p.Services, r.service(len(p.Regions), &rows))
	}
	if r.pinned {
		r.pins(p)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("bytes follow its end")
	}
	return p, r.err
}

// names reads thousands of them into one string.
func (r *reader) names() {
	n := r.count(2)
	all, ends, last := make([]byte, 0, 8*n), make([]int, 0, n), 0
	for range n {
		shared := r.number()
		if shared > uint64(len(all)-last) {
			r.fail("a name shares %d bytes with one of %d", shared, len(all)-last)
			return
		}
		rest := r.bytes()
		if int(shared)+len(rest) > maxNameBytes {
			r.fail("a name has %d bytes", int(shared)+len(rest))
			return
		}
		begin := len(all)
		all = append(append(all, all[last:last+int(shared)]...), rest...)
		ends, last = append(ends, len(all)), begin
	}
	text, begin := string(all), 0
	r.cells = make([]string, 0, n)
	for _, end := range ends {
		r.cells = append(r.cells, text[begin:end])
		begin = end
	}
}

func (r *reader) shares() []Share {
	n := r.count(2)
	if n > MaxRegions {
		r.fail("a list of %d shares is too long", n)
		return nil
	}
	out := make([]Share, 0, n)
	at := 0
	for range n {
		at += r.index(MaxRegions)
		w := r.index(WeightSum + 1)
		if at >= MaxRegions {
			r.fail("region %d is out of range", at)
			return nil
		}
		out = append(out, Share{Region: uint16(at), Weight: uint16(w)})
	}
	return out
}

func (r *reader) service(regions int, rows *int) Service {
	s := Service{Name: r.text()}
	if 2*regions > len(r.b) {
		r.fail("it ends early")
		return s
	}
	s.Wait, s.Price = make([]float64, regions), make([]float64, regions)
	for k := range regions {
		s.Wait[k], s.Price[k] = float64(r.number())/1000, float64(r.number())/1000
	}
	s.Spread = r.listed()
	n := r.count(2)
	if *rows += n; *rows > MaxRows {
		r.fail("it has more than %d rows", MaxRows)
		return s
	}
	if n > 0 {
		s.Rows = make([]Row, 0, n)
	}
	cell := 0
	for range n {
		if cell += r.index(len(r.cells)); cell >= len(r.cells) {
			r.fail("cell %d is out of range", cell)
			return s
		}
		if r.err == nil {
			s.Rows = append(s.Rows, Row{Cell: r.cells[cell], Shares: r.listed()})
		}
	}
	return s
}

// pins reads what version 3 adds. A plan without any is of version 2.
func (r *reader) pins(p *Plan) {
	rows := r.count(5)
	if rows == 0 {
		r.fail("it is of version 3 and has no pins")
		return
	}
	for range rows {
		svc := r.index(len(p.Services))
		if r.err != nil {
			return
		}
		s := &p.Services[svc]
		row, n := r.index(len(s.Rows)), r.count(2)
		if r.err == nil && (n == 0 || n > maxRowPins || len(s.Rows[row].Pins) > 0) {
			r.fail("row %d of service %d has %d pins, or has them twice", row, svc, n)
		}
		if r.err != nil {
			return
		}
		at := uint64(0)
		for range n {
			at += r.number()
			s.Rows[row].Pins = append(s.Rows[row].Pins, Pin{Network: at, Region: uint16(r.index(MaxRegions))})
		}
	}
}

// listed reads which list of shares is meant. Rows that share one share its memory: a plan is never changed.
func (r *reader) listed() []Share {
	i := r.index(len(r.lists))
	if r.err != nil {
		return nil
	}
	return r.lists[i]
}
