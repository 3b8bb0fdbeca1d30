package decision

import (
	"encoding/binary"
	"time"
)

// Ring keeps the newest records within a number of bytes. It has one writer. A nil Ring keeps nothing.
type Ring struct {
	limit    int
	segments []segment // oldest first; only the last one grows
	end      uint64    // bytes ever written
	records  uint64    // records ever written
	refused  uint64    // records that were too long
	scratch  []byte
	// Scratch is memory for the record that the decider is filling in.
	Scratch Record
}

// segment is a part of the ring. Its bytes never change once they are written.
type segment struct {
	start uint64 // number of bytes written before it
	bytes []byte
}

// NewRing returns a ring of at most so many bytes, nil for none.
func NewRing(limit int) *Ring {
	if limit <= 0 {
		return nil
	}
	return &Ring{limit: max(limit, 2*segmentBytes), scratch: make([]byte, 0, maxRecordBytes), Scratch: Record{Candidates: make([]Candidate, 0, 64)}}
}

// AddRecord adds a record and drops the oldest ones beyond the bound.
func (r *Ring) AddRecord(rec *Record) {
	if r == nil {
		return
	}
	b := rec.appendTo(r.scratch[:0])
	r.scratch = b[:0]
	if len(b) > maxRecordBytes && rec.Event != EventState || len(b) > segmentBytes-binary.MaxVarintLen32 {
		r.refused++
		return
	}
	at := len(r.segments) - 1
	if at < 0 || len(r.segments[at].bytes)+len(b)+binary.MaxVarintLen32 > segmentBytes {
		if (at+2)*segmentBytes > r.limit {
			r.segments = append(r.segments[:0], r.segments[1:]...)
			at--
		}
		r.segments = append(r.segments, segment{r.end, make([]byte, 0, segmentBytes)})
		at++
	}
	s := &r.segments[at]
	before := len(s.bytes)
	s.bytes = append(binary.AppendUvarint(s.bytes, uint64(len(b))), b...)
	r.end += uint64(len(s.bytes) - before)
	r.records++
}

// Parts returns the bytes of the ring, oldest first. They do not change while the ring grows.
func (r *Ring) Parts() [][]byte {
	out, _, _ := r.PartsFrom(0)
	return out
}

// PartsFrom returns what was written after the position from, the position for the next call, and how many bytes were dropped
// in between.
func (r *Ring) PartsFrom(from uint64) (parts [][]byte, next, lost uint64) {
	if r == nil {
		return nil, 0, 0
	}
	if len(r.segments) > 0 && from < r.segments[0].start {
		lost, from = r.segments[0].start-from, r.segments[0].start
	}
	for _, s := range r.segments {
		if n := uint64(len(s.bytes)); from < s.start+n {
			parts = append(parts, s.bytes[from-s.start:n:n])
			from = s.start + n
		}
	}
	return parts, r.end, lost
}

// Counts returns how many records were written, and how many were not because they were too long.
func (r *Ring) Counts() (records, refused uint64) {
	if r == nil {
		return 0, 0
	}
	return r.records, r.refused
}

// Found are the records of one request, and what else the ring holds.
type Found struct {
	Records  []Record
	Searched int       // records of all requests
	Oldest   time.Time // of all requests; zero when the ring is empty
}

// maxFound bounds the records of one request. Clients may send the same id many times.
const maxFound = 64

// FindRequest returns the records of a request, the newest of them where there are more than maxFound.
func FindRequest(parts [][]byte, id string) (out Found) {
	if len(id) > maxTextBytes {
		id = id[:maxTextBytes]
	}
	for _, part := range parts {
		for {
			b, rest, ok := NextRecord(part)
			if !ok {
				break
			}
			part = rest
			found, at, ok := recordHead(b)
			if !ok {
				continue
			}
			if out.Searched++; out.Oldest.IsZero() {
				out.Oldest = at
			}
			if string(found) != id || id == "" {
				continue
			}
			if rec, err := DecodeRecord(b); err == nil {
				if len(out.Records) == maxFound {
					out.Records = append(out.Records[:0], out.Records[1:]...)
				}
				out.Records = append(out.Records, rec)
			}
		}
	}
	return out
}
