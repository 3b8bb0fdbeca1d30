package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Total is what many requests used.
type Total struct {
	Requests   int64 `json:"requests"`
	Prompt     int64 `json:"prompt_tokens"`
	Cached     int64 `json:"cached_tokens"`
	Completion int64 `json:"completion_tokens"`
	Micros     int64 `json:"cost_micros"`
	Estimated  int64 `json:"estimated_requests"` // of which the engine stated nothing
	// What passed unread: gRPC calls, WebSockets and the like.
	BytesIn  int64 `json:"bytes_in,omitempty"`
	BytesOut int64 `json:"bytes_out,omitempty"`
}

func (t *Total) add(r *Record) {
	t.Requests++
	t.Prompt += int64(r.Prompt)
	t.Cached += int64(r.Cached)
	t.Completion += int64(r.Completion)
	t.Micros += r.Micros
	t.BytesIn += r.BytesIn
	t.BytesOut += r.BytesOut
	if !r.Stated {
		t.Estimated++
	}
}

// Key is what a Total is of. Parts that were not asked for are empty.
type Key struct {
	Tenant string `json:"tenant,omitempty"`
	Model  string `json:"model,omitempty"`
	Region string `json:"region,omitempty"`
	Day    string `json:"day,omitempty"` // in UTC
}

// Parts are what totals may be split by.
func Parts() []string { return []string{"tenant", "model", "region", "day"} }

// Report is what files say.
type Report struct {
	Files   int           `json:"files"`
	Records int64         `json:"records"`
	Totals  map[Key]Total `json:"-"`
	// Twice counts records that stood in the files before: they are not in the totals.
	Twice int64 `json:"twice"`
	// Missing counts numbers between the first and the last of a gateway's life that no file has.
	Missing int64 `json:"missing"`
	// Torn are files whose last line is not whole, as a kill leaves it. Bad are lines that cannot be read, "FILE:LINE".
	Torn []string `json:"torn,omitempty"`
	Bad  []string `json:"bad,omitempty"`

	by    []string
	lives map[uint64]*life
}

// maxBad bounds the lines that a Report names.
const maxBad = 1000

// life is the numbers seen of one boot, as runs.
type life struct{ runs []run }

type run struct{ first, last uint64 }

// see notes a number; false when it was seen before. Files are read in the order in which they were written, so that runs
// are few.
func (l *life) see(n uint64) bool {
	at, found := slices.BinarySearchFunc(l.runs, n, func(r run, n uint64) int {
		switch {
		case r.last < n:
			return -1
		case r.first > n:
			return 1
		}
		return 0
	})
	if found {
		return false
	}
	before, after := at > 0 && l.runs[at-1].last+1 == n, at < len(l.runs) && l.runs[at].first == n+1
	switch {
	case before && after:
		l.runs[at-1].last = l.runs[at].last
		l.runs = slices.Delete(l.runs, at, at+1)
	case before:
		l.runs[at-1].last = n
	case after:
		l.runs[at].first = n
	default:
		l.runs = slices.Insert(l.runs, at, run{n, n})
	}
	return true
}

// maxMissing bounds what a record with an absurd number makes missing.
const maxMissing = 1 << 50

func (l *life) missing() (n int64) {
	next := uint64(1)
	for _, r := range l.runs {
		n += int64(min(r.first-next, maxMissing))
		next = r.last + 1
	}
	return min(n, maxMissing)
}

// Read sums files and folders of files, each record once. by are the Parts to split by.
func Read(paths, by []string) (*Report, error) {
	for _, p := range by {
		if !slices.Contains(Parts(), p) {
			return nil, fmt.Errorf("usage cannot be split by %q: it can by %s", p, strings.Join(Parts(), ", "))
		}
	}
	r := &Report{by: by, Totals: map[Key]Total{}, lives: map[uint64]*life{}}
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if err := r.file(f); err != nil {
				return nil, err
			}
		}
	}
	for _, l := range r.lives {
		r.Missing += l.missing()
	}
	return r, nil
}

func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("looking for usage records: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "usage-*.jsonl"))
	slices.Sort(files)
	return files, err
}

func (r *Report) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening usage records: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	r.Files++
	in := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			if len(line) > 0 {
				r.Torn = append(r.Torn, name)
			}
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			r.bad(name, n)
			continue
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		}
		rec, err := Decode(line[:len(line)-1])
		if err != nil {
			r.bad(name, n)
			continue
		}
		r.take(&rec)
	}
}

func (r *Report) bad(name string, line int) {
	if len(r.Bad) < maxBad {
		r.Bad = append(r.Bad, fmt.Sprintf("%s:%d", name, line))
	}
}

func (r *Report) take(rec *Record) {
	l := r.lives[rec.Boot]
	if l == nil {
		l = &life{}
		r.lives[rec.Boot] = l
	}
	if !l.see(rec.Seq) {
		r.Twice++
		return
	}
	r.Records++
	var k Key
	for _, p := range r.by {
		switch p {
		case "tenant":
			k.Tenant = rec.Tenant
		case "model":
			k.Model = rec.Model
		case "region":
			k.Region = rec.Region
		case "day":
			k.Day = rec.At.UTC().Format("2006-01-02")
		}
	}
	t := r.Totals[k]
	t.add(rec)
	r.Totals[k] = t
}
