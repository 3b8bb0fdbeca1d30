package framing

import "time"

// ResetBurst and ResetRate are what a connection may take back of what it asked for: so many streams at once, and so many
// in a second from then on. A front end that carries many people's requests stays far below.
const (
	ResetBurst = 500
	ResetRate  = 50
)

const (
	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	prefaceLine = 16 // the length of its first line
	frameHead   = 9  // RFC 9113, 4.1
	rstStream   = 3
	headers     = 1
	continued   = 9 // CONTINUATION
	endHeaders  = 4 // the flag
)

// goAway is the frame that ends a connection for its haste (RFC 9113, 6.8 and 7).
const goAway = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x0b"

// frames follows the frames of an HTTP/2 connection's client, however they are cut into pieces.
type frames struct {
	head   [frameHead]byte
	have   int   // bytes of the head
	skip   int64 // bytes of what is passed over
	resets Resets
	open   bool // a head was begun and not ended
	heads  int  // that were ended
}

// see takes the next bytes; false when the client has reset too many streams.
func (f *frames) see(b []byte, now func() time.Time) bool {
	for n := 0; n < len(b); {
		if f.step(b[n:], &n) && f.head[3] == rstStream && !f.resets.Take(now()) {
			return false
		}
	}
	return true
}

// boundary takes the next bytes up to the end of the frame that is under way, and returns how many they are; ok is false when
// it does not end in b.
func (f *frames) boundary(b []byte) (n int, ok bool) {
	for f.have > 0 || f.skip > 0 {
		if n == len(b) {
			return n, false
		}
		f.step(b[n:], &n)
	}
	return n, true
}

// pass takes the next bytes, whatever they are.
func (f *frames) pass(b []byte) {
	for n := 0; n < len(b); {
		f.step(b[n:], &n)
	}
}

// step takes what is left of a payload, or of a frame's head, and adds its length to n.
func (f *frames) step(b []byte, n *int) (head bool) {
	if f.skip > 0 {
		m := min(int64(len(b)), f.skip)
		f.skip -= m
		*n += int(m)
		return false
	}
	m := copy(f.head[f.have:], b)
	f.have += m
	*n += m
	if f.have < frameHead {
		return false
	}
	f.have = 0
	f.skip = int64(f.head[0])<<16 | int64(f.head[1])<<8 | int64(f.head[2])
	if k := f.head[3]; k == headers || k == continued {
		if f.open = f.head[4]&endHeaders == 0; !f.open {
			f.heads++
		}
	}
	return true
}

// heading says that a request's head has begun to come and is not all there: more frames of it are due, or a part of the
// last.
func (f *frames) heading() bool {
	return f.open || (f.skip > 0 || f.have > 3) && (f.head[3] == headers || f.head[3] == continued)
}

// Resets counts what one connection takes back. The zero value is ready; it has one user at a time.
type Resets struct {
	left   float64
	filled time.Time
}

// Take counts one; false when it is one too many.
func (r *Resets) Take(now time.Time) bool {
	if r.filled.IsZero() {
		r.left = ResetBurst
	} else {
		r.left = min(ResetBurst, r.left+now.Sub(r.filled).Seconds()*ResetRate)
	}
	r.filled = now
	r.left--
	return r.left >= 0
}
