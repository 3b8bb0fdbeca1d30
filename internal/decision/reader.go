package decision

import (
	"encoding/binary"
	"math"
)

// Reader reads the inputs of a record, which a tier has encoded with the Append functions. After a malformed field every method
// returns zero values.
type Reader struct{ c cursor }

// NewReader returns a reader of inputs.
func NewReader(b []byte) *Reader { return &Reader{cursor{b: b}} }

// TakeText takes a text.
func (r *Reader) TakeText() string { return string(r.c.takeText()) }

// TakeUint takes a number.
func (r *Reader) TakeUint() uint64 { return r.c.takeUint() }

// TakeInt takes a number that may be negative.
func (r *Reader) TakeInt() int64 { u := r.c.takeUint(); return int64(u>>1) ^ -int64(u&1) }

// TakeFixed takes eight bytes.
func (r *Reader) TakeFixed() uint64 { return binary.LittleEndian.Uint64(r.c.takeBytes(8)) }

// TakeFloat takes a number with all its bits.
func (r *Reader) TakeFloat() float64 { return math.Float64frombits(r.TakeFixed()) }

// TakeBool takes a truth value.
func (r *Reader) TakeBool() bool { return r.c.takeByte() != 0 }

// TakeLen takes the length of a list, at most limit.
func (r *Reader) TakeLen(limit int) int {
	n := r.c.takeUint()
	if n > uint64(limit) || n > uint64(len(r.c.b)) {
		r.c.bad = true
		return 0
	}
	return int(n)
}

// TakeRaw takes a byte.
func (r *Reader) TakeRaw() byte { return r.c.takeByte() }

// TakeRest takes all remaining bytes.
func (r *Reader) TakeRest() []byte { b := r.c.b; r.c.b = nil; return b }

// Failure returns an error if any field was malformed.
func (r *Reader) Failure() error { return r.c.failure() }

// AppendText appends a text; long ones are cut.
func AppendText(b []byte, s string) []byte { return appendText(b, s) }

// AppendUint appends a number.
func AppendUint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

// AppendInt appends a number that may be negative.
func AppendInt(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

// AppendFixed appends eight bytes.
func AppendFixed(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }

// AppendFloat appends a number with all its bits.
func AppendFloat(b []byte, f float64) []byte { return AppendFixed(b, math.Float64bits(f)) }

// AppendBool appends a truth value.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
