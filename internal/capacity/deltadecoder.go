package capacity

import (
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// DeltaDecoder decodes the deltas of one child. Most of them have a head and patches and nothing else: it decodes those
// without an intermediate message, into memory of its own, and with the names of the delta before. The zero DeltaDecoder
// is ready for use. It is not safe for concurrent use.
type DeltaDecoder struct {
	delta   SummaryDelta
	patches []ModelPatch
	masks   []uint32
	values  []int64
	last    Summary // the head of the last such delta
}

// DecodeDelta is the function of that name. The delta is valid until the next call; what OverlayOn makes of it stays
// valid.
func (x *DeltaDecoder) DecodeDelta(b []byte) (*SummaryDelta, error) {
	if len(b) > MaxEncoded || !x.decodePatches(b) || x.delta.checkDelta() != nil {
		return DecodeDelta(b)
	}
	x.last = x.delta.Head
	return &x.delta, nil
}

// Field numbers of capacitypb.Delta.
const (
	deltaBaseSeq     protowire.Number = 1
	deltaHead        protowire.Number = 2
	deltaPatchAt     protowire.Number = 40
	deltaPatchMask   protowire.Number = 41
	deltaPatchValues protowire.Number = 42
)

// decodePatches decodes a delta that has a head and patches only. It returns false for any other.
func (x *DeltaDecoder) decodePatches(b []byte) bool {
	x.delta = SummaryDelta{}
	x.patches, x.masks, x.values = x.patches[:0], x.masks[:0], x.values[:0]
	seen := uint64(0)
	for len(b) > 0 {
		field, rest, ok := takeField(b)
		if !ok || seen&(1<<field.number) != 0 { // a column in two parts is another case
			return false
		}
		b = rest
		seen |= 1 << field.number
		switch {
		case field.number == deltaBaseSeq && field.isVarint:
			x.delta.BaseSeq = field.value
		case field.number == deltaHead && !field.isVarint:
			ok = x.decodeHead(field.body)
		case field.number == deltaPatchAt && !field.isVarint:
			ok = eachVarint(field.body, func(n uint64) bool {
				x.patches = append(x.patches, ModelPatch{ModelIndex: int(uint32(n))})
				return len(x.patches) <= MaxModels
			})
		case field.number == deltaPatchMask && !field.isVarint:
			ok = eachVarint(field.body, func(n uint64) bool {
				x.masks = append(x.masks, uint32(n))
				return len(x.masks) <= MaxModels
			})
		case field.number == deltaPatchValues && !field.isVarint:
			ok = eachVarint(field.body, func(n uint64) bool {
				x.values = append(x.values, toAmount(n))
				return true
			})
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return seen&(1<<deltaHead) != 0 && x.joinColumns()
}

// joinColumns makes patches of the three columns.
func (x *DeltaDecoder) joinColumns() bool {
	if len(x.masks) != len(x.patches) {
		return false
	}
	values := x.values
	for i, mask := range x.masks {
		n := bits.OnesCount32(mask)
		if n > len(values) {
			return false
		}
		x.patches[i].Mask, x.patches[i].Values = mask, values[:n:n]
		values = values[n:]
	}
	if len(x.patches) > 0 {
		x.delta.Patches = x.patches
	}
	return len(values) == 0
}

// decodeHead decodes a head that has a path, numbers, an endpoint and acks only.
func (x *DeltaDecoder) decodeHead(b []byte) bool {
	h, hasPath := &x.delta.Head, false
	for len(b) > 0 {
		field, rest, ok := takeField(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case field.number == 1 && !field.isVarint && !hasPath:
			hasPath = true
			ok = x.decodePath(field.body)
		case field.number == 2 && field.isVarint:
			h.Boot = field.value
		case field.number == 3 && field.isVarint:
			h.Seq = field.value
		case field.number == 4 && !field.isVarint:
			h.Endpoint, ok = shareName(x.last.Endpoint, field.body)
		case field.number == 5 && field.isVarint:
			h.Draining = field.value != 0
		case field.number == 7 && !field.isVarint && len(h.Acks) < MaxAcks:
			ok = x.decodeAck(field.body)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

func (x *DeltaDecoder) decodePath(b []byte) bool {
	p, last := &x.delta.Head.Path, &x.last.Path
	for len(b) > 0 {
		field, rest, ok := takeField(b)
		if !ok || field.isVarint {
			return false
		}
		b = rest
		switch field.number {
		case 1:
			p.Region, ok = shareName(last.Region, field.body)
		case 2:
			p.Zone, ok = shareName(last.Zone, field.body)
		case 3:
			p.Instance, ok = shareName(last.Instance, field.body)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

func (x *DeltaDecoder) decodeAck(b []byte) bool {
	h := &x.delta.Head
	i := len(h.Acks)
	if i == 0 {
		h.Acks = make([]LedgerAck, 0, max(1, len(x.last.Acks))) // the summary keeps it
	}
	var a LedgerAck
	known := ""
	if i < len(x.last.Acks) {
		known = x.last.Acks[i].Parent
	}
	for len(b) > 0 {
		field, rest, ok := takeField(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case field.number == 1 && !field.isVarint:
			a.Parent, ok = shareName(known, field.body)
		case field.number == 2 && field.isVarint:
			a.Boot = field.value
		case field.number == 3 && field.isVarint:
			a.Ticket = field.value
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	h.Acks = append(h.Acks, a)
	return true
}

// shareName returns the name in b, known itself if it is the same, and whether it is plain.
func shareName(known string, b []byte) (string, bool) {
	if string(b) == known { // known was plain
		return known, true
	}
	s := string(b)
	return s, isPlainName(s)
}

// wireField is one field of a message: a varint or bytes.
type wireField struct {
	number   protowire.Number
	isVarint bool
	value    uint64
	body     []byte
}

// takeField returns the first field of b and what follows it. It returns false for malformed bytes, other types and
// numbers over 63.
func takeField(b []byte) (f wireField, rest []byte, ok bool) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number > 63 {
		return f, nil, false
	}
	f.number, b = number, b[n:]
	switch kind {
	case protowire.VarintType:
		f.isVarint = true
		f.value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.body, n = protowire.ConsumeBytes(b)
	default:
		return f, nil, false
	}
	if n < 0 {
		return f, nil, false
	}
	return f, b[n:], true
}

// eachVarint calls do for each of a row of varints until it returns false.
func eachVarint(b []byte, do func(uint64) bool) bool {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 || !do(v) {
			return false
		}
		b = b[n:]
	}
	return true
}
