package uplink

import (
	"bytes"
	"errors"
)

var errUnknownSpecOrder = errors.New("a directive refers to a spec that this session does not hold")

// directiveReader decodes a parent's directives on the child. A superseded one is dropped, and one without a spec
// gets it from the directive that carried it. It holds one spec, the newest.
type directiveReader struct {
	newestOrder uint64 // order of the newest directive
	specOrder   uint64 // order of the directive that brought spec
	spec        []byte
}

// readDirective reads a directive; d is nil when it is superseded. brought is its order if it carried a spec, to be
// reported to the parent, and otherwise 0.
func (o *directiveReader) readDirective(b []byte) (brought uint64, d *Directive, err error) {
	order, specOf, d, err := decodeDirective(b)
	switch {
	case err != nil:
		return 0, nil, err
	case order <= o.newestOrder:
		return 0, nil, nil
	case specOf != 0 && (specOf != o.specOrder || len(d.Spec) > 0):
		return 0, nil, errUnknownSpecOrder
	}
	o.newestOrder = order
	switch {
	case specOf != 0:
		d.Spec = o.spec
	case len(d.Spec) > 0:
		o.specOrder, o.spec = order, d.Spec
		return order, d, nil
	}
	return 0, d, nil
}

// directiveWriter is the other end of directiveReader: it keeps on the parent which spec the child holds.
type directiveWriter struct {
	specOrder uint64 // order of the last directive with a spec, and that spec
	spec      []byte
}

// encodeForChild encodes a directive; held is the order of the newest spec that the child reports to hold. The spec
// is left out if it is that one. Until the child has confirmed the last spec, every directive carries it.
func (b *directiveWriter) encodeForChild(order, held uint64, d *Directive) ([]byte, omittedCounts, error) {
	if held != 0 && held == b.specOrder && bytes.Equal(d.Spec, b.spec) {
		return encodeDirective(order, held, d)
	}
	out, left, err := encodeDirective(order, 0, d)
	if err == nil && len(d.Spec) > 0 {
		b.specOrder, b.spec = order, d.Spec
	}
	return out, left, err
}
