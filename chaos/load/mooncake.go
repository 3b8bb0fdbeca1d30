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
	// mooncakeBlockTokens is the number of tokens per hash id.
	mooncakeBlockTokens = 512
	// mooncakeClockStep is the resolution to which the conversation trace's times were rounded.
	mooncakeClockStep = 3 * time.Second
	// roundingSample is the number of records that are checked for rounded times.
	roundingSample = 256
	// maxBucketRecords bounds the records of the same time in memory.
	maxBucketRecords = 65536
)

// ReadMooncake reads the format of the Mooncake traces: one JSON object per line with timestamp (ms), input_length,
// output_length and hash_ids, one id for each 512 tokens, where equal ids from the first on are a shared prefix. If
// most arrivals have the time of the one before, times were rounded to three seconds: each such bucket is then spread
// evenly over its three seconds, in the trace's order, because the queueing would otherwise be an artifact. Errors
// name the line.
func ReadMooncake(r io.Reader, seed uint64) ArrivalSource { return newMooncakeReader(r, seed) }

func newMooncakeReader(r io.Reader, seed uint64) *mooncakeReader {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), 1<<20)
	return &mooncakeReader{scanner: scanner, rng: rand.New(rand.NewPCG(seed, 0x3c3c))}
}

type mooncakeReader struct {
	scanner      *bufio.Scanner
	rng          *rand.Rand
	mergeBlocks  bool      // blocks with consecutive ids become one piece
	parsed       []Arrival // the whole trace, if cached: then nothing is parsed
	line         int
	inspected    bool
	clockRounded bool
	unspread     []Arrival // read and not yet spread
	ready        []Arrival // spread and not yet returned
	begun        bool
	startTime    time.Duration
	lastAt       time.Duration
	endErr       error
}

func (s *mooncakeReader) NextArrival() (Arrival, error) {
	if !s.inspected {
		s.detectRounding()
	}
	if len(s.ready) == 0 {
		s.fillReady()
	}
	if len(s.ready) == 0 {
		return Arrival{}, s.endErr
	}
	a := s.ready[0]
	s.ready = s.ready[1:]
	return a, nil
}

// detectRounding checks the beginning of the trace.
func (s *mooncakeReader) detectRounding() {
	s.inspected = true
	same := 0
	for len(s.unspread) < roundingSample && s.readRecord() {
		if n := len(s.unspread); n > 1 && s.unspread[n-1].At == s.unspread[n-2].At {
			same++
		}
	}
	s.clockRounded = same*2 > len(s.unspread)
}

// fillReady moves all arrivals of one time from unspread to ready.
func (s *mooncakeReader) fillReady() {
	if len(s.unspread) == 0 && !s.readRecord() {
		return
	}
	n := 1
	for ; n < maxBucketRecords; n++ {
		if n == len(s.unspread) && !s.readRecord() || s.unspread[n].At != s.unspread[0].At {
			break
		}
	}
	s.ready = slices.Clone(s.unspread[:n])
	s.unspread = slices.Delete(s.unspread, 0, n)
	if s.clockRounded {
		s.spreadBucket()
	}
}

// spreadBucket distributes the bucket's arrivals over the time up to the next bucket.
func (s *mooncakeReader) spreadBucket() {
	span := mooncakeClockStep
	if len(s.unspread) > 0 {
		span = min(span, s.unspread[0].At-s.ready[0].At)
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

// readRecord reads one record; false at the end, or at an invalid record, which ends the source.
func (s *mooncakeReader) readRecord() bool {
	if s.endErr != nil {
		return false
	}
	if len(s.parsed) > 0 {
		return s.readParsed()
	}
	if !s.scanner.Scan() {
		s.endErr = io.EOF
		if err := s.scanner.Err(); err != nil {
			s.endErr = fmt.Errorf("after line %d: %w", s.line, err)
		}
		return false
	}
	s.line++
	a, err := s.parseRecord(s.scanner.Bytes())
	if err != nil {
		s.endErr = fmt.Errorf("line %d: %w", s.line, err)
		return false
	}
	s.unspread = append(s.unspread, a)
	return true
}

// readParsed is readRecord for a cached trace.
func (s *mooncakeReader) readParsed() bool {
	if s.line == len(s.parsed) {
		s.endErr = io.EOF
		return false
	}
	a := s.parsed[s.line]
	a.Prompt = slices.Clone(a.Prompt)
	s.line++
	s.unspread = append(s.unspread, a)
	return true
}

func (s *mooncakeReader) parseRecord(line []byte) (Arrival, error) {
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
	case r.Input < 0 || r.Input > maxTraceTokens || r.Output < 0 || r.Output > maxTraceTokens:
		return Arrival{}, fmt.Errorf("%d and %d are not lengths in tokens", r.Input, r.Output)
	}
	at := time.Duration(*r.Timestamp * float64(time.Millisecond))
	if !s.begun {
		s.begun, s.startTime = true, at
	}
	s.lastAt = max(s.lastAt, at-s.startTime)
	return Arrival{
		At: s.lastAt, Output: max(r.Output, 1), Session: conversationID(r.Hashes),
		Prompt: cutBlocks(r.Hashes, max(r.Input, 1), s.line, s.mergeBlocks),
	}, nil
}

// conversationID identifies a prompt by what follows the first block, which all may share.
func conversationID(ids []uint64) uint64 {
	if len(ids) < 2 {
		return 0
	}
	return mixBits(1<<62 | ids[1])
}

// cutBlocks splits the prompt into its blocks or, with merge, only where an id is not the previous one plus one:
// consecutive ids were assigned together. The part without ids is unique to the request.
func cutBlocks(ids []uint64, length, line int, merge bool) []Piece {
	var list []Piece
	for i, id := range ids {
		if length == 0 {
			break
		}
		n := min(mooncakeBlockTokens, length)
		length -= n
		if merge && i > 0 && id == ids[i-1]+1 {
			list[len(list)-1].Tokens += n
			continue
		}
		list = append(list, Piece{ID: mixBits(id), Tokens: n})
	}
	if length > 0 {
		list = append(list, Piece{ID: mixBits(1<<63 | uint64(line)), Tokens: length})
	}
	return list
}
