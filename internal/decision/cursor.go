package decision

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// appendText appends a text of bounded length.
func appendText(b []byte, s string) []byte {
	if len(s) > maxTextBytes {
		s = s[:maxTextBytes]
	}
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendCount(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(max(n, 0))) }

// errMalformed means that bytes are no record.
var errMalformed = errors.New("malformed record")

// cursor reads the fields of a record.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) takeBytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad = true
		return make([]byte, min(max(n, 0), 8))
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) takeByte() byte { return c.takeBytes(1)[0] }

func (c *cursor) takeUint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// takeCount takes a number that is not negative.
func (c *cursor) takeCount() int64 {
	v := c.takeUint()
	if v > math.MaxInt64 {
		c.bad = true
		return 0
	}
	return int64(v)
}

func (c *cursor) takeTime() time.Time {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.bad = true
		return time.Time{}
	}
	c.b = c.b[n:]
	return time.Unix(0, v).UTC()
}

// takeText takes a text. A view of the bytes suffices to compare it.
func (c *cursor) takeText() []byte {
	n := c.takeUint()
	if n > maxTextBytes {
		c.bad = true
		return nil
	}
	return c.takeBytes(int(n))
}

func (c *cursor) takeString() string { return string(c.takeText()) }

func (c *cursor) takeCandidate() (out Candidate) {
	out.Name, out.Ineligible, out.present = c.takeString(), c.takeString(), c.takeByte()
	for t := range numTerms {
		if out.present&(1<<t) != 0 {
			out.seconds[t] = math.Float32frombits(binary.LittleEndian.Uint32(c.takeBytes(4)))
		}
	}
	return out
}

func (c *cursor) failure() error {
	if c.bad {
		return errMalformed
	}
	return nil
}
