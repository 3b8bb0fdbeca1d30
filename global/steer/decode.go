package steer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a plan of version 1, which a Raft log may still contain.
const (
	maxJSONBytes  = 500 << 10
	jsonWeightSum = 10000
	maxNameBytes  = 255
)

// DecodePlan reads a plan of any version and refuses one that SolvePlan cannot have made.
func DecodePlan(b []byte) (*Plan, error) {
	p, err := decodeUnchecked(b)
	if err == nil {
		err = p.validatePlan()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a plan: %w", err)
	}
	return p, nil
}

func decodeUnchecked(b []byte) (*Plan, error) {
	switch {
	case len(b) > 0 && (b[0] == planVersion2 || b[0] == planVersion3) && len(b) > MaxEncodedBytes:
		return nil, fmt.Errorf("it is %d bytes, over the limit of %d", len(b), MaxEncodedBytes)
	case len(b) > 0 && (b[0] == planVersion2 || b[0] == planVersion3):
		r := &planReader{rest: b[1:], hasPins: b[0] == planVersion3}
		return r.readPlan()
	case len(b) > 0 && b[0] < ' ':
		return nil, fmt.Errorf("it has version %d, and this node reads versions up to %d: upgrade this node", b[0], PlanVersion)
	}
	return decodeJSONPlan(b)
}

// decodeJSONPlan reads version 1.
func decodeJSONPlan(b []byte) (*Plan, error) {
	if len(b) > maxJSONBytes {
		return nil, fmt.Errorf("it is %d bytes, over the limit of %d", len(b), maxJSONBytes)
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
		if err := rescaleWeights(&s.Spread, len(p.Regions)); err != nil {
			return nil, fmt.Errorf("service %s: spread: %w", s.Name, err)
		}
		for k := range s.Rows {
			if err := rescaleWeights(&s.Rows[k].Shares, len(p.Regions)); err != nil {
				return nil, fmt.Errorf("service %s: cell %s: %w", s.Name, s.Rows[k].Cell, err)
			}
		}
	}
	return p, nil
}

// rescaleWeights converts the weights of version 1 to WeightSum.
func rescaleWeights(shares *[]RegionShare, regions int) error {
	if regions > MaxRegions {
		return fmt.Errorf("%d regions are too many", regions)
	}
	if err := validateShares(*shares, regions, jsonWeightSum); err != nil {
		return err
	}
	parts := make([]float64, regions)
	for _, s := range *shares {
		parts[s.Region] = float64(s.Weight)
	}
	*shares = quantiseShares(parts)
	return nil
}

// planReader reads versions 2 and 3. After the first error it returns zeros and keeps that error.
type planReader struct {
	rest       []byte
	err        error
	shareLists [][]RegionShare
	cellNames  []string
	hasPins    bool
}

func (r *planReader) setError(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.rest = nil
}

func (r *planReader) readNumber() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.setError("it ends early")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// readCount reads the number of the following items, each of which takes at least the given number of bytes.
func (r *planReader) readCount(least int) int {
	n := r.readNumber()
	if n > uint64(len(r.rest)/least) {
		r.setError("it ends early")
		return 0
	}
	return int(n)
}

// readIndex reads a number below n.
func (r *planReader) readIndex(n int) int {
	v := r.readNumber()
	if v >= uint64(n) {
		r.setError("index %d is out of range", v)
		return 0
	}
	return int(v)
}

func (r *planReader) readText() string { return string(r.readBytes()) }

// readBytes returns a slice of the plan's own memory.
func (r *planReader) readBytes() []byte {
	n := r.readCount(1)
	if n > maxNameBytes {
		r.setError("a name has %d bytes", n)
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *planReader) readPlan() (*Plan, error) {
	p := &Plan{SpecVersion: r.readNumber()}
	for range r.readCount(1) {
		p.Regions = append(p.Regions, r.readText())
	}
	for range r.readCount(1) {
		if i := r.readIndex(len(p.Regions)); r.err == nil {
			p.Without = append(p.Without, p.Regions[i])
		}
	}
	if n := r.readCount(1); n > 0 {
		p.Ramp = append([]uint8(nil), r.rest[:n]...)
		r.rest = r.rest[n:]
	}
	r.readCellNames()
	for range r.readCount(3) {
		r.shareLists = append(r.shareLists, r.readShares())
	}
	rows := 0
	for range r.readCount(3) {
		p.Services = append(p.Services, r.readService(len(p.Regions), &rows))
	}
	if r.hasPins {
		r.readPins(p)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.setError("bytes follow its end")
	}
	return p, r.err
}

// readCellNames reads all names into one string, because a plan has thousands.
func (r *planReader) readCellNames() {
	n := r.readCount(2)
	all, ends, last := make([]byte, 0, 8*n), make([]int, 0, n), 0
	for range n {
		shared := r.readNumber()
		if shared > uint64(len(all)-last) {
			r.setError("a name shares %d bytes with one of %d", shared, len(all)-last)
			return
		}
		rest := r.readBytes()
		if int(shared)+len(rest) > maxNameBytes {
			r.setError("a name has %d bytes", int(shared)+len(rest))
			return
		}
		begin := len(all)
		all = append(append(all, all[last:last+int(shared)]...), rest...)
		ends, last = append(ends, len(all)), begin
	}
	text, begin := string(all), 0
	r.cellNames = make([]string, 0, n)
	for _, end := range ends {
		r.cellNames = append(r.cellNames, text[begin:end])
		begin = end
	}
}

func (r *planReader) readShares() []RegionShare {
	n := r.readCount(2)
	if n > MaxRegions {
		r.setError("a list of %d shares is too long", n)
		return nil
	}
	out := make([]RegionShare, 0, n)
	at := 0
	for range n {
		at += r.readIndex(MaxRegions)
		w := r.readIndex(WeightSum + 1)
		if at >= MaxRegions {
			r.setError("region %d is out of range", at)
			return nil
		}
		out = append(out, RegionShare{Region: uint16(at), Weight: uint16(w)})
	}
	return out
}

func (r *planReader) readService(regions int, rows *int) ServicePlan {
	s := ServicePlan{Name: r.readText()}
	if 2*regions > len(r.rest) {
		r.setError("it ends early")
		return s
	}
	s.Wait, s.Price = make([]float64, regions), make([]float64, regions)
	for k := range regions {
		s.Wait[k], s.Price[k] = float64(r.readNumber())/1000, float64(r.readNumber())/1000
	}
	s.Spread = r.readSharedList()
	n := r.readCount(2)
	if *rows += n; *rows > MaxRows {
		r.setError("it has more than %d rows", MaxRows)
		return s
	}
	if n > 0 {
		s.Rows = make([]CellRow, 0, n)
	}
	cell := 0
	for range n {
		if cell += r.readIndex(len(r.cellNames)); cell >= len(r.cellNames) {
			r.setError("cell %d is out of range", cell)
			return s
		}
		if r.err == nil {
			s.Rows = append(s.Rows, CellRow{Cell: r.cellNames[cell], Shares: r.readSharedList()})
		}
	}
	return s
}

// readPins reads the part that version 3 adds. A plan without pins is of version 2.
func (r *planReader) readPins(p *Plan) {
	rows := r.readCount(5)
	if rows == 0 {
		r.setError("it is of version 3 and has no pins")
		return
	}
	for range rows {
		svc := r.readIndex(len(p.Services))
		if r.err != nil {
			return
		}
		s := &p.Services[svc]
		row, n := r.readIndex(len(s.Rows)), r.readCount(2)
		if r.err == nil && (n == 0 || n > maxRowPins || len(s.Rows[row].Pins) > 0) {
			r.setError("row %d of service %d has %d pins, or has them twice", row, svc, n)
		}
		if r.err != nil {
			return
		}
		at := uint64(0)
		for range n {
			at += r.readNumber()
			s.Rows[row].Pins = append(s.Rows[row].Pins, Pin{Network: at, Region: uint16(r.readIndex(MaxRegions))})
		}
	}
}

// readSharedList reads a reference to a list of shares. Rows with the same list share its memory: a plan is
// immutable.
func (r *planReader) readSharedList() []RegionShare {
	i := r.readIndex(len(r.shareLists))
	if r.err != nil {
		return nil
	}
	return r.shareLists[i]
}
