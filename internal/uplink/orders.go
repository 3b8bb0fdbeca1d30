package uplink

import (
	"bytes"
	"errors"
)

var errSpecNotHeld = errors.New("a directive refers to a spec that this session does not hold")

// orders puts a parent's directives together at the child: an overtaken one is dropped, and one that leaves the spec out
// gets it from the directive that brought it. It holds one spec, the newest.
type orders struct {
	newest uint64 // order of the newest directive
	specOf uint64 // order of the directive that brought spec
	spec   []byte
}

// take reads a directive; d is nil when it is overtaken. brought is its order when it brought a spec, which the parent
// wants to hear of, and otherwise 0.
func (o *orders) take(b []byte) (brought uint64, d *Directive, err error) {
	order, specOf, d, err := decodeDirective(b)
	switch {
	case err != nil:
		return 0, nil, err
	case order <= o.newest:
		return 0, nil, nil
	case specOf != 0 && (specOf != o.specOf || len(d.Spec) > 0):
		return 0, nil, errSpecNotHeld
	}
	o.newest = order
	switch {
	case specOf != 0:
		d.Spec = o.spec
	case len(d.Spec) > 0:
		o.specOf, o.spec = order, d.Spec
		return order, d, nil
	}
	return 0, d, nil
}

// briefing is orders' other end: it knows at the parent which spec the child holds.
type briefing struct {
	specOf uint64 // order of the last directive sent whole, and its spec
	spec   []byte
}

// encode writes a directive; held is the order of the newest spec that the child said it holds. The spec is left out
// if it is that one. While the child has not answered about the last spec sent, nothing is taken for granted.
func (b *briefing) encode(order, held uint64, d *Directive) ([]byte, omitted, error) {
	if held != 0 && held == b.specOf && bytes.Equal(d.Spec, b.spec) {
		return encodeDirective(order, held, d)
	}
	out, left, err := encodeDirective(order, 0, d)
	if err == nil && len(d.Spec) > 0 {
		b.specOf, b.spec = order, d.Spec
	}
	return out, left, err
}
