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

// A record is what a run was asked and what it did, as JSON lines of two kinds: one when a request falls due, in that
// order, and one when it is over. Whatever played the run, live or in virtual time, both can play it again: ReadTrace
// reads a record as a source, and the workload "recorded" as a feed.

// Did is what came of one recorded request.
type Did struct {
	// Verdict is an Outcome's.
	Verdict string
	// Route is region/zone/worker, as far as it is known.
	Route string
	// First is when the first token came (0 for none) and End when the request was over, both from when it was due.
	First, End time.Duration
	// Output is how many tokens came, Cached how many of the prompt's the worker had in its cache.
	Output, Cached int
}

// recorded is a line of a record.
type recorded struct {
	Due     *float64 `json:"due,omitempty"` // seconds; first, for it tells the format
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

// recordStart is how a record begins.
const recordStart = `{"due":`

// Recorder writes a record. Its methods may be called by many goroutines; requests are to be recorded in order.
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

// Asked notes a request that falls due.
func (r *Recorder) Asked(q *Request) {
	due := q.At.Seconds()
	line := recorded{
		Due: &due, ID: q.ID, Region: q.Region, Tenant: q.Tenant, Model: q.Model, Turn: q.Turn, Session: q.Session,
		Answer: q.Answer, Output: q.Output, Prompt: make([]string, len(q.Prompt)),
	}
	for i, p := range q.Prompt {
		line.Prompt[i] = strconv.FormatUint(p.ID, 16) + ":" + strconv.Itoa(p.Tokens)
	}
	r.put(&line)
}

// Over notes what came of the request with this number.
func (r *Recorder) Over(id uint64, d Did) {
	r.put(&recorded{
		ID: id, Verdict: d.Verdict, Route: d.Route, First: d.First.Seconds(), End: d.End.Seconds(), Output: d.Output, Cached: d.Cached,
	})
}

func (r *Recorder) put(line *recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.enc.Encode(line)
	}
}

// Flush writes out what is left, and returns the first error of all.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.err, r.w.Flush()); err != nil {
		return fmt.Errorf("recording the run: %w", err)
	}
	return nil
}

// records reads what a run was asked. Errors name the line.
type records struct {
	scanner *bufio.Scanner
	line    int
	last    time.Duration
	over    func(id uint64, d Did) // is told what came of requests; nil: nobody
}

func newRecords(r io.Reader) *records {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), 16<<20)
	return &records{scanner: s}
}

func (s *records) next() (*Request, error) {
	for s.scanner.Scan() {
		s.line++
		var line recorded
		if err := json.Unmarshal(s.scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: reading the record: %w", s.line, err)
		}
		q, err := s.read(&line)
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

// read returns a request that was asked, or nil for what came of one.
func (s *records) read(line *recorded) (*Request, error) {
	if line.Due == nil {
		if !seconds64(line.First) || !seconds64(line.End) || line.Output < 0 || line.Cached < 0 {
			return nil, fmt.Errorf("first and end are seconds, output and cached are tokens")
		}
		if s.over != nil {
			s.over(line.ID, Did{
				Verdict: line.Verdict, Route: line.Route, Output: line.Output, Cached: line.Cached,
				First: inSeconds(line.First), End: inSeconds(line.End),
			})
		}
		return nil, nil
	}
	switch {
	case !seconds64(*line.Due):
		return nil, fmt.Errorf("due: %v is not a time in seconds", *line.Due)
	case line.Output < 1 || line.Output > maxTokens:
		return nil, fmt.Errorf("output: %d is not a length in tokens", line.Output)
	case line.Region < 0 || line.Tenant < 0 || line.Model < 0 || line.Turn < 0:
		return nil, fmt.Errorf("region, tenant, model and turn count from 0")
	}
	s.last = max(s.last, inSeconds(*line.Due))
	q := &Request{
		At: s.last, Region: line.Region, Tenant: line.Tenant, Model: line.Model, Turn: line.Turn, Session: line.Session,
		Answer: line.Answer, Output: line.Output,
	}
	if q.Session == 0 {
		q.Session = mix(1<<52 | line.ID)
	}
	for _, p := range line.Prompt {
		id, n, _ := strings.Cut(p, ":")
		name, err := strconv.ParseUint(id, 16, 64)
		tokens, err2 := strconv.Atoi(n)
		if err != nil || err2 != nil || tokens < 1 || tokens > maxTokens-q.PromptTokens {
			return nil, fmt.Errorf("prompt: %.40q is not a piece: use ID:tokens, the ID in hexadecimal", p)
		}
		q.Prompt, q.PromptTokens = append(q.Prompt, Piece{ID: name, Tokens: tokens}), q.PromptTokens+tokens
	}
	if q.PromptTokens == 0 {
		return nil, fmt.Errorf("prompt: is empty")
	}
	return q, nil
}

func inSeconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// Next reads the record as a source, for a live run.
func (s *records) Next() (Arrival, error) {
	q, err := s.next()
	if err != nil {
		return Arrival{}, err
	}
	return Arrival{At: q.At, Prompt: q.Prompt, Output: q.Output, Session: q.Session}, nil
}

// recordedRoots are a record's requests for a feed: each when it was due, whatever becomes of the others.
type recordedRoots struct {
	*records
	w    *Workload
	path string
	file io.Closer
}

func (w *Workload) recorded() (Roots, error) {
	if w.Trace == "" {
		return nil, errors.New("trace: name the file that the run was recorded in")
	}
	f, err := openFile(w.Trace)
	if err != nil {
		return nil, err
	}
	return &recordedRoots{records: newRecords(f), w: w, path: w.Trace, file: f}, nil
}

// Next returns the next request, in the region and of the tenant and session that it was recorded with.
func (r *recordedRoots) Next() (*Request, error) {
	q, err := r.next()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s: %w", r.path, err)
		}
		return nil, err
	}
	r.w.cap(q)
	return q, nil
}

// Close closes the file.
func (r *recordedRoots) Close() error { return r.file.Close() }

// ReadOutcomes reads what came of a recorded run's requests, by their number. It holds all of them.
func ReadOutcomes(path string) (map[uint64]Did, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[uint64]Did{}
	s := newRecords(f)
	s.over = func(id uint64, d Did) { all[id] = d }
	for {
		if _, err := s.next(); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}
