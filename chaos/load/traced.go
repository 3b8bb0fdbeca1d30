package load

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

func (w *Workload) azure() (Roots, error) {
	return w.traced("azure2023/AzureLLMInferenceTrace_conv.csv.gz")
}

func (w *Workload) conversations() (Roots, error) {
	return w.traced("mooncake/conversation_0-2640s.jsonl.gz")
}

func (w *Workload) synthetic() (Roots, error) { return w.traced("mooncake/synthetic.jsonl.gz") }

// file is the trace to read.
func (w *Workload) file(name string) string {
	if w.Trace != "" {
		return w.Trace
	}
	return filepath.Join(w.Traces, filepath.FromSlash(name))
}

// traced plays a trace of arrivals.
func (w *Workload) traced(name string) (Roots, error) {
	path := w.file(name)
	speed := 1.0
	if w.Rate > 0 {
		own, err := ownRate(path)
		if err != nil {
			return nil, err
		}
		speed = w.Rate / own
	}
	t, err := openTraced(path, w.Seed)
	if err != nil {
		return nil, err
	}
	by := Scale{Rate: speed, MaxPrompt: w.MaxPrompt, MaxOutput: w.MaxOutput}
	return &traced{w: w, path: path, by: by, source: Scaled(t, by), file: t}, nil
}

// openTraced opens a trace, of which what is kept is not parsed again.
func openTraced(path string, seed uint64) (*Trace, error) {
	t, err := OpenTrace(path, seed)
	if err != nil {
		return nil, err
	}
	if m, ok := t.Source.(*mooncake); ok {
		m.merge, m.known = true, files.known(path)
	}
	return t, nil
}

// ownRate is a trace's requests per second.
func ownRate(path string) (float64, error) {
	return files.rateOf(path, func() (float64, error) { return measureRate(path) })
}

func measureRate(path string) (float64, error) {
	t, err := openTraced(path, 0)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	var n int
	var last time.Duration
	for {
		a, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		n, last = n+1, a.At
	}
	if n < 2 || last <= 0 {
		return 0, fmt.Errorf("%s: %d requests in %v have no rate: leave rate out", path, n, last)
	}
	return float64(n) / last.Seconds(), nil
}

type traced struct {
	w      *Workload
	path   string
	by     Scale
	source Source
	file   io.Closer
	n      uint64
	lap    uint64        // how often the trace has begun anew
	start  time.Duration // of this lap
	last   time.Duration // when the request before was due
}

func (t *traced) Next() (*Request, error) {
	a, err := t.source.Next()
	if errors.Is(err, io.EOF) && t.w.Repeat && t.w.For > 0 && t.last > t.start {
		if err = t.again(); err == nil {
			a, err = t.source.Next()
		}
	}
	if err != nil {
		return nil, err
	}
	t.n++
	a.At += t.start
	if t.last = a.At; t.lap > 0 {
		t.rename(&a)
	}
	r := &Request{At: a.At, Session: a.Session, Prompt: a.Prompt, PromptTokens: a.PromptTokens(), Output: a.Output}
	if r.Session == 0 {
		r.Session = mix(t.w.Seed ^ mix(1<<61|t.n))
	}
	r.Region = t.w.region(r.Session)
	return r, nil
}

// again begins the trace anew, one mean time between requests after its end.
func (t *traced) again() error {
	if err := t.file.Close(); err != nil {
		return err
	}
	f, err := openTraced(t.path, t.w.Seed)
	if err != nil {
		return err
	}
	t.lap++
	t.source, t.file = Scaled(f, t.by), f
	t.start = t.last + t.last/time.Duration(t.n)
	return nil
}

// rename makes a request of a later lap one that nobody has asked before, and keeps what it shares with others of its lap.
func (t *traced) rename(a *Arrival) {
	if a.Session != 0 {
		a.Session = mix(a.Session ^ mix(t.lap|1<<60))
	}
	prompt := make([]Piece, len(a.Prompt))
	for i, p := range a.Prompt {
		p.ID = mix(p.ID ^ mix(t.lap|1<<60))
		prompt[i] = p
	}
	a.Prompt = prompt
}

func (t *traced) Close() error { return t.file.Close() }
