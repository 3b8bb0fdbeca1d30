package reqguard

import "time"

// ResetBurst and ResetRate bound the stream resets of a connection: a burst of streams, and streams per second
// after that. A proxy with the requests of many users stays far below.
const (
	ResetBurst = 500
	ResetRate  = 50
)

const (
	preface           = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	prefaceLineBytes  = 16 // length of its first line
	frameHeaderBytes  = 9  // RFC 9113, 4.1
	rstStreamFrame    = 3
	headersFrame      = 1
	continuationFrame = 9 // CONTINUATION
	endHeadersFlag    = 4 // the flag
)

// goAwayFrame is the GOAWAY frame for too many resets, with error code 0xb: excessive load (RFC 9113, 6.8 and 7).
const goAwayFrame = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x0b"

// frameTracker tracks the frames of one direction of an HTTP/2 connection, however they are split.
type frameTracker struct {
	header      [frameHeaderBytes]byte
	headerRead  int   // bytes of the frame header
	payloadLeft int64 // payload bytes left to skip
	resets      ResetLimiter
	headOpen    bool // a head has begun and not ended
	headsEnded  int  // number of complete heads
}

// checkFrames processes the next bytes. It returns false if the client has reset too many streams.
func (f *frameTracker) checkFrames(b []byte, now func() time.Time) bool {
	for n := 0; n < len(b); {
		if f.parseStep(b[n:], &n) && f.header[3] == rstStreamFrame && !f.resets.AllowReset(now()) {
			return false
		}
	}
	return true
}

// skipToBoundary processes bytes up to the end of the current frame and returns their number; ok is false if
// the frame does not end in b.
func (f *frameTracker) skipToBoundary(b []byte) (n int, ok bool) {
	for f.headerRead > 0 || f.payloadLeft > 0 {
		if n == len(b) {
			return n, false
		}
		f.parseStep(b[n:], &n)
	}
	return n, true
}

// skipBytes processes the next bytes.
func (f *frameTracker) skipBytes(b []byte) {
	for n := 0; n < len(b); {
		f.parseStep(b[n:], &n)
	}
}

// parseStep processes the rest of a payload or of a frame header, and adds its length to n.
func (f *frameTracker) parseStep(b []byte, n *int) (head bool) {
	if f.payloadLeft > 0 {
		m := min(int64(len(b)), f.payloadLeft)
		f.payloadLeft -= m
		*n += int(m)
		return false
	}
	m := copy(f.header[f.headerRead:], b)
	f.headerRead += m
	*n += m
	if f.headerRead < frameHeaderBytes {
		return false
	}
	f.headerRead = 0
	f.payloadLeft = int64(f.header[0])<<16 | int64(f.header[1])<<8 | int64(f.header[2])
	if k := f.header[3]; k == headersFrame || k == continuationFrame {
		if f.headOpen = f.header[4]&endHeadersFlag == 0; !f.headOpen {
			f.headsEnded++
		}
	}
	return true
}

// isInHead reports whether a request head is incomplete: further frames or a part of the last are still to
// come.
func (f *frameTracker) isInHead() bool {
	return f.headOpen || (f.payloadLeft > 0 || f.headerRead > 3) && (f.header[3] == headersFrame || f.header[3] == continuationFrame)
}

// ResetLimiter counts the stream resets of one connection. The zero value is ready to use; it is not safe for
// concurrent use.
type ResetLimiter struct {
	tokens   float64
	filledAt time.Time
}

// AllowReset counts one reset. It returns false if it exceeds the limit.
func (r *ResetLimiter) AllowReset(now time.Time) bool {
	if r.filledAt.IsZero() {
		r.tokens = ResetBurst
	} else {
		r.tokens = min(ResetBurst, r.tokens+now.Sub(r.filledAt).Seconds()*ResetRate)
	}
	r.filledAt = now
	r.tokens--
	return r.tokens >= 0
}
