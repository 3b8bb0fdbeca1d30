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
	"sync"
	"time"
)

// A record is the requests and outcomes of a run, as JSON lines of two kinds: one when a request is due, in that
// order, and one when it ends. Records of live and of simulated runs can be replayed by both: ReadTrace reads a
// record as a source, and the workload "recorded" as a feed.

// RecordedOutcome is the outcome of one recorded request.
type RecordedOutcome struct {
	// Kind is that of RequestOutcome.
	Kind string
	// Route is region/zone/worker, as far as known.
	Route string
	// First is when the first token arrived (0 for none) and End when the request ended, both from when it was due.
	First, End time.Duration
	// Output is the number of received tokens, Cached how many of the prompt's were in the worker's cache.
	Output, Cached int
}

// recordLine is a line of a record.
type recordLine struct {
	Due     *float64 `json:"due,omitempty"` // seconds; the first key, because it identifies the format
	ID      uint64   `json:"id"`
	Region  int32    `json:"region,omitempty"`
	Tenant  int32    `json:"tenant,omitempty"`
	Model   int32    `json:"model,omitempty"`
	Turn    int32    `json:"turn,omitempty"`
	Session uint64   `json:"session,omitempty,string"`
	Prompt  []string `json:"prompt,omitempty"` // pieces, as ID:tokens
	Answer  uint64   `json:"answer,omitempty,string"`
	Output  int      `json:"output"`

	Verdict string  `json:"verdict,omitempty"`
	Route   string  `json:"route,omitempty"`
	First   float64 `json:"first,omitempty"`
	End     float64 `json:"end,omitempty"`
	Cached  int     `json:"cached,omitempty"`
}

// recordPrefix is the beginning of a record.
const recordPrefix = `{"due":`

// Recorder writes a record. Its methods may be called concurrently; requests must be recorded in order.
type Recorder struct {
	mu  sync.Mutex
	w   *bufio.Writer
	enc *json.Encoder
	err error
}

// NewRecorder writes to w. Call Flush at the end.
func NewRecorder(w io.Writer) *Recorder {
	b := bufio.NewWriter(w)
	return &Recorder{w: b, enc: json.NewEncoder(b)}
}

// RecordRequest records a request that is due.
func (r *Recorder) RecordRequest(q *Request) {
	due := q.At.Seconds()
	line := recordLine{
		Due: &due, ID: q.ID, Region: q.Region, Tenant: q.Tenant, Model: q.Model, Turn: q.Turn, Session: q.Session,
		Answer: q.Answer, Output: q.Output, Prompt: make([]string, len(q.Prompt)),
	}
	for i, p := range q.Prompt {
		line.Prompt[i] = strconv.FormatUint(p.ID, 16) + ":" + strconv.Itoa(p.Tokens)
	}
	r.writeLine(&line)
}

// RecordOutcome records the outcome of the request with this number.
func (r *Recorder) RecordOutcome(id uint64, d RecordedOutcome) {
	r.writeLine(&recordLine{
		ID: id, Verdict: d.Kind, Route: d.Route, First: d.First.Seconds(), End: d.End.Seconds(), Output: d.Output, Cached: d.Cached,
	})
}

func (r *Recorder) writeLine(line *recordLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.enc.Encode(line)
	}
}

// Flush writes buffered data, and returns the first error of all writes.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.err, r.w.Flush()); err != nil {
		return fmt.Errorf("recording the run: %w", err)
	}
	return nil
}

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

func (w *Workload) openRecord() (RootSource, error) {
	if w.Trace == "" {
		return nil, errors.New("trace: name the file that the run was recorded in")
	}
	f, err := openFile(w.Trace)
	if err != nil {
		return nil, err
	}
	return &recordedSource{recordReader: newRecordReader(f), workload: w, path: w.Trace, file: f}, nil
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
