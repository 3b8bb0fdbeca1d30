package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// mooncakeBlock is how many tokens one hash id stands for.
	mooncakeBlock = 512
	// quantum is the step that the conversation trace's clock was rounded to.
	quantum = 3 * time.Second
	// sample is how many records are looked at to see whether a trace was rounded.
	sample = 256
	// maxBucket bounds how many records of one moment are held at a time.
	maxBucket = 65536
)

// Mooncake reads the format of the Mooncake traces: a JSON object a line with timestamp (ms), input_length,
// output_length and hash_ids, one id for each 512 tokens, equal ids from the first on being a shared prefix. Where most
// arrivals carry the time of the one before, the clock was rounded to three seconds: each such bucket is then spread
// evenly over its three seconds, in the trace's order, or the queueing would be an artefact. Errors name the line.
func Mooncake(r io.Reader, seed uint64) Source { return newMooncake(r, seed) }

func newMooncake(r io.Reader, seed uint64) *mooncake {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), 1<<20)
	return &mooncake{scanner: scanner, rng: rand.New(rand.NewPCG(seed, 0x3c3c))}
}

type mooncake struct {
	scanner *bufio.Scanner
	rng     *rand.Rand
	merge   bool      // blocks whose ids follow each other become one piece
	known   []Arrival // all of the trace, where they are kept: then nothing is scanned
	line    int
	primed  bool
	rounded bool
	ahead   []Arrival // read and not yet spread
	ready   []Arrival // spread and not yet played
	begun   bool
	first   time.Duration
	last    time.Duration
	end     error
}

func (s *mooncake) Next() (Arrival, error) {
	if !s.primed {
		s.prime()
	}
	if len(s.ready) == 0 {
		s.bucket()
	}
	if len(s.ready) == 0 {
		return Arrival{}, s.end
	}
	a := s.ready[0]
	s.ready = s.ready[1:]
	return a, nil
}

// prime looks at the beginning of the trace.
func (s *mooncake) prime() {
	s.primed = true
	same := 0
	for len(s.ahead) < sample && s.read() {
		if n := len(s.ahead); n > 1 && s.ahead[n-1].At == s.ahead[n-2].At {
			same++
		}
	}
	s.rounded = same*2 > len(s.ahead)
}

// bucket moves all arrivals of one moment from ahead to ready.
func (s *mooncake) bucket() {
	if len(s.ahead) == 0 && !s.read() {
		return
	}
	n := 1
	for ; n < maxBucket; n++ {
		if n == len(s.ahead) && !s.read() || s.ahead[n].At != s.ahead[0].At {
			break
		}
	}
	s.ready = slices.Clone(s.ahead[:n])
	s.ahead = slices.Delete(s.ahead, 0, n)
	if s.rounded {
		s.spread()
	}
}

// spread gives the bucket's arrivals times of their own, up to the next bucket.
func (s *mooncake) spread() {
	span := quantum
	if len(s.ahead) > 0 {
		span = min(span, s.ahead[0].At-s.ready[0].At)
	}
	offsets := make([]time.Duration, len(s.ready))
	for i := range offsets {
		offsets[i] = time.Duration(s.rng.Float64() * float64(span))
	}
	slices.Sort(offsets)
	for i := range s.ready {
		s.ready[i].At += offsets[i]
	}
}

// read takes one record; false at the end, or at a record that cannot be read, which ends the source.
func (s *mooncake) read() bool {
	if s.end != nil {
		return false
	}
	if len(s.known) > 0 {
		return s.recall()
	}
	if !s.scanner.Scan() {
		s.end = io.EOF
		if err := s.scanner.Err(); err != nil {
			s.end = fmt.Errorf("after line %d: %w", s.line, err)
		}
		return false
	}
	s.line++
	a, err := s.record(s.scanner.Bytes())
	if err != nil {
		s.end = fmt.Errorf("line %d: %w", s.line, err)
		return false
	}
	s.ahead = append(s.ahead, a)
	return true
}

// recall is read of a trace that is kept.
func (s *mooncake) recall() bool {
	if s.line == len(s.known) {
		s.end = io.EOF
		return false
	}
	a := s.known[s.line]
	a.Prompt = slices.Clone(a.Prompt)
	s.line++
	s.ahead = append(s.ahead, a)
	return true
}

func (s *mooncake) record(line []byte) (Arrival, error) {
	var r struct {
		Timestamp *float64 `json:"timestamp"`
		Input     int      `json:"input_length"`
		Output    int      `json:"output_length"`
		Hashes    []uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Arrival{}, fmt.Errorf("reading the record: it is no JSON object with timestamp, input_length and output_length: %w", err)
	}
	switch {
	case r.Timestamp == nil || *r.Timestamp < 0 || *r.Timestamp > 1e12:
		return Arrival{}, fmt.Errorf("timestamp is missing or out of range")
	case r.Input < 0 || r.Input > maxTokens || r.Output < 0 || r.Output > maxTokens:
		return Arrival{}, fmt.Errorf("%d and %d are not lengths in tokens", r.Input, r.Output)
	}
	at := time.Duration(*r.Timestamp * float64(time.Millisecond))
	if !s.begun {
		s.begun, s.first = true, at
	}
	s.last = max(s.last, at-s.first)
	return Arrival{
		At: s.last, Output: max(r.Output, 1), Session: conversation(r.Hashes),
		Prompt: pieces(r.Hashes, max(r.Input, 1), s.line, s.merge),
	}, nil
}

// conversation names what a prompt goes on with after the block that all may share.
func conversation(ids []uint64) uint64 {
	if len(ids) < 2 {
		return 0
	}
	return mix(1<<62 | ids[1])
}

// pieces cuts the prompt at its blocks, or where merge is set only where one id is not the one before plus one: ids that
// follow each other were given out together. What the ids do not cover is the request's own.
func pieces(ids []uint64, length, line int, merge bool) []Piece {
	var list []Piece
	for i, id := range ids {
		if length == 0 {
			break
		}
		n := min(mooncakeBlock, length)
		length -= n
		if merge && i > 0 && id == ids[i-1]+1 {
			list[len(list)-1].Tokens += n
			continue
		}
		list = append(list, Piece{ID: mix(id), Tokens: n})
	}
	if length > 0 {
		list = append(list, Piece{ID: mix(1<<63 | uint64(line)), Tokens: length})
	}
	return list
}
