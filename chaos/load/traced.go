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
	t, err := OpenTrace(path, w.Seed)
	if err != nil {
		return nil, err
	}
	if m, ok := t.Source.(*mooncake); ok {
		m.merge = true
	}
	by := Scale{Rate: speed, MaxPrompt: w.MaxPrompt, MaxOutput: w.MaxOutput}
	return &traced{w: w, source: Scaled(t, by), file: t}, nil
}

// ownRate is a trace's requests per second.
func ownRate(path string) (float64, error) {
	t, err := OpenTrace(path, 0)
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
	source Source
	file   io.Closer
	n      uint64
}

func (t *traced) Next() (*Request, error) {
	a, err := t.source.Next()
	if err != nil {
		return nil, err
	}
	t.n++
	r := &Request{At: a.At, Session: a.Session, Prompt: a.Prompt, PromptTokens: a.PromptTokens(), Output: a.Output}
	if r.Session == 0 {
		r.Session = mix(t.w.Seed ^ mix(1<<61|t.n))
	}
	r.Region = t.w.region(r.Session)
	return r, nil
}

func (t *traced) Close() error { return t.file.Close() }
