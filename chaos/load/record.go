package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
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
