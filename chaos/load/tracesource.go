package load

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

func (w *Workload) openAzure() (RootSource, error) {
	return w.openTraceSource(azureTrace)
}

func (w *Workload) openConversations() (RootSource, error) {
	return w.openTraceSource(conversationTrace)
}

func (w *Workload) openSynthetic() (RootSource, error) {
	return w.openTraceSource(syntheticTrace)
}

// tracePath returns the path of the workload's own trace, or of the public trace of this name.
func (w *Workload) tracePath(name string) (string, error) {
	if w.Trace != "" {
		return w.Trace, nil
	}
	return w.publicTrace(name)
}

// publicTrace returns the path of a public trace.
func (w *Workload) publicTrace(name string) (string, error) {
	if w.Traces == "" {
		return "", fmt.Errorf("no folder of public traces is given: use --traces DIR or set %s; `spillway traces` lists the files", TracesVariable)
	}
	return filepath.Join(w.Traces, filepath.FromSlash(name)), nil
}

// openTraceSource plays a trace of arrivals.
func (w *Workload) openTraceSource(name string) (RootSource, error) {
	path, err := w.tracePath(name)
	if err != nil {
		return nil, err
	}
	speed := 1.0
	if w.Rate > 0 {
		own, err := nativeRate(path)
		if err != nil {
			return nil, err
		}
		speed = w.Rate / own
	}
	t, err := openCachedTrace(path, w.Seed)
	if err != nil {
		return nil, err
	}
	by := Scale{Rate: speed, MaxPrompt: w.MaxPrompt, MaxOutput: w.MaxOutput}
	return &traceSource{workload: w, path: path, scale: by, source: ScaleSource(t, by), file: t}, nil
}

// openCachedTrace opens a trace without parsing it again if it is cached.
func openCachedTrace(path string, seed uint64) (*Trace, error) {
	t, err := OpenTrace(path, seed)
	if err != nil {
		return nil, err
	}
	if m, ok := t.ArrivalSource.(*mooncakeReader); ok {
		m.mergeBlocks, m.parsed = true, traceFiles.readArrivals(path)
	}
	return t, nil
}

// nativeRate is a trace's requests per second.
func nativeRate(path string) (float64, error) {
	return traceFiles.readRate(path, func() (float64, error) { return measureRate(path) })
}

func measureRate(path string) (float64, error) {
	t, err := openCachedTrace(path, 0)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	var n int
	var last time.Duration
	for {
		a, err := t.NextArrival()
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

type traceSource struct {
	workload *Workload
	path     string
	scale    Scale
	source   ArrivalSource
	file     io.Closer
	count    uint64
	lap      uint64        // how often the trace has been restarted
	lapStart time.Duration // of this lap
	lastAt   time.Duration // when the previous request was due
}

func (t *traceSource) NextRequest() (*Request, error) {
	a, err := t.source.NextArrival()
	if errors.Is(err, io.EOF) && t.workload.Repeat && t.workload.For > 0 && t.lastAt > t.lapStart {
		if err = t.restartTrace(); err == nil {
			a, err = t.source.NextArrival()
		}
	}
	if err != nil {
		return nil, err
	}
	t.count++
	a.At += t.lapStart
	if t.lastAt = a.At; t.lap > 0 {
		t.renameArrival(&a)
	}
	r := &Request{At: a.At, Session: a.Session, Prompt: a.Prompt, PromptTokens: a.PromptTokens(), Output: a.Output}
	if r.Session == 0 {
		r.Session = mixBits(t.workload.Seed ^ mixBits(1<<61|t.count))
	}
	r.Region = t.workload.regionOfSession(r.Session)
	return r, nil
}

// restartTrace starts the trace again, one mean interval after its end.
func (t *traceSource) restartTrace() error {
	if err := t.file.Close(); err != nil {
		return err
	}
	f, err := openCachedTrace(t.path, t.workload.Seed)
	if err != nil {
		return err
	}
	t.lap++
	t.source, t.file = ScaleSource(f, t.scale), f
	t.lapStart = t.lastAt + t.lastAt/time.Duration(t.count)
	return nil
}

// renameArrival gives a request of a later lap new piece and session ids, and keeps what it shares with others of its
// lap.
func (t *traceSource) renameArrival(a *Arrival) {
	if a.Session != 0 {
		a.Session = mixBits(a.Session ^ mixBits(t.lap|1<<60))
	}
	prompt := make([]Piece, len(a.Prompt))
	for i, p := range a.Prompt {
		p.ID = mixBits(p.ID ^ mixBits(t.lap|1<<60))
		prompt[i] = p
	}
	a.Prompt = prompt
}

func (t *traceSource) Close() error { return t.file.Close() }

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
