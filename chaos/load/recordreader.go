package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// recordReader reads the requests of a record. Errors name the line.
type recordReader struct {
	scanner   *bufio.Scanner
	line      int
	lastAt    time.Duration
	onOutcome func(id uint64, d RecordedOutcome) // called with the outcomes of requests; nil: not called
}

func newRecordReader(r io.Reader) *recordReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), 16<<20)
	return &recordReader{scanner: s}
}

func (s *recordReader) readRequest() (*Request, error) {
	for s.scanner.Scan() {
		s.line++
		var line recordLine
		if err := json.Unmarshal(s.scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: reading the record: %w", s.line, err)
		}
		q, err := s.parseLine(&line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", s.line, err)
		}
		if q != nil {
			return q, nil
		}
	}
	if err := s.scanner.Err(); err != nil {
		return nil, fmt.Errorf("after line %d: %w", s.line, err)
	}
	return nil, io.EOF
}

// parseLine returns the request of a line, or nil for an outcome.
func (s *recordReader) parseLine(line *recordLine) (*Request, error) {
	if line.Due == nil {
		if !isSeconds(line.First) || !isSeconds(line.End) || line.Output < 0 || line.Cached < 0 {
			return nil, fmt.Errorf("first and end are seconds, output and cached are tokens")
		}
		if s.onOutcome != nil {
			s.onOutcome(line.ID, RecordedOutcome{
				Kind: line.Verdict, Route: line.Route, Output: line.Output, Cached: line.Cached,
				First: roundSeconds(line.First), End: roundSeconds(line.End),
			})
		}
		return nil, nil
	}
	switch {
	case !isSeconds(*line.Due):
		return nil, fmt.Errorf("due: %v is not a time in seconds", *line.Due)
	case line.Output < 1 || line.Output > maxTraceTokens:
		return nil, fmt.Errorf("output: %d is not a length in tokens", line.Output)
	case line.Region < 0 || line.Tenant < 0 || line.Model < 0 || line.Turn < 0:
		return nil, fmt.Errorf("region, tenant, model and turn count from 0")
	}
	s.lastAt = max(s.lastAt, roundSeconds(*line.Due))
	q := &Request{
		At: s.lastAt, Region: line.Region, Tenant: line.Tenant, Model: line.Model, Turn: line.Turn, Session: line.Session,
		Answer: line.Answer, Output: line.Output,
	}
	if q.Session == 0 {
		q.Session = mixBits(1<<52 | line.ID)
	}
	for _, p := range line.Prompt {
		id, n, _ := strings.Cut(p, ":")
		name, err := strconv.ParseUint(id, 16, 64)
		tokens, err2 := strconv.Atoi(n)
		if err != nil || err2 != nil || tokens < 1 || tokens > maxTraceTokens-q.PromptTokens {
			return nil, fmt.Errorf("prompt: %.40q is not a piece: use ID:tokens, the ID in hexadecimal", p)
		}
		q.Prompt, q.PromptTokens = append(q.Prompt, Piece{ID: name, Tokens: tokens}), q.PromptTokens+tokens
	}
	if q.PromptTokens == 0 {
		return nil, fmt.Errorf("prompt: is empty")
	}
	return q, nil
}

func roundSeconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}

// NextArrival reads the record as a source, for a live run.
func (s *recordReader) NextArrival() (Arrival, error) {
	q, err := s.readRequest()
	if err != nil {
		return Arrival{}, err
	}
	return Arrival{At: q.At, Prompt: q.Prompt, Output: q.Output, Session: q.Session}, nil
}

// recordedSource is a record's requests for a feed: each at its recorded time, independent of answers.
type recordedSource struct {
	*recordReader
	workload *Workload
	path     string
	file     io.Closer
}

// NextRequest returns the next request, with its recorded region, tenant and session.
func (r *recordedSource) NextRequest() (*Request, error) {
	q, err := r.readRequest()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s: %w", r.path, err)
		}
		return nil, err
	}
	r.workload.capLengths(q)
	return q, nil
}

// Close closes the file.
func (r *recordedSource) Close() error { return r.file.Close() }

// ReadOutcomes reads the outcomes of a recorded run's requests, by number. All of them are in memory.
func ReadOutcomes(path string) (map[uint64]RecordedOutcome, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[uint64]RecordedOutcome{}
	s := newRecordReader(f)
	s.onOutcome = func(id uint64, d RecordedOutcome) { all[id] = d }
	for {
		if _, err := s.readRequest(); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}
