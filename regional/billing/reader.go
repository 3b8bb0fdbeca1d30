package billing

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

// Total is the sum over many requests.
type Total struct {
	Requests   int64 `json:"requests"`
	Prompt     int64 `json:"prompt_tokens"`
	Cached     int64 `json:"cached_tokens"`
	Completion int64 `json:"completion_tokens"`
	Micros     int64 `json:"cost_micros"`
	Estimated  int64 `json:"estimated_requests"` // without a usage report of the engine
	// Bytes that passed without being parsed: gRPC calls, WebSockets and the like.
	BytesIn  int64 `json:"bytes_in,omitempty"`
	BytesOut int64 `json:"bytes_out,omitempty"`
}

func (t *Total) addRecord(r *UsageRecord) {
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

// TotalKey is the group of a Total. Keys that were not selected are empty.
type TotalKey struct {
	Tenant string `json:"tenant,omitempty"`
	Model  string `json:"model,omitempty"`
	Region string `json:"region,omitempty"`
	Day    string `json:"day,omitempty"` // in UTC
}

// GroupingKeys lists the keys by which totals can be grouped.
func GroupingKeys() []string { return []string{"tenant", "model", "region", "day"} }

// UsageReport is the result of reading files.
type UsageReport struct {
	Files   int                `json:"files"`
	Records int64              `json:"records"`
	Totals  map[TotalKey]Total `json:"-"`
	// Duplicates counts records that occurred before: they are not in the totals.
	Duplicates int64 `json:"twice"`
	// Missing counts numbers between the first and the last of a gateway's boot that no file contains.
	Missing int64 `json:"missing"`
	// Torn lists files with an incomplete last line, as a kill leaves it. Bad lists lines that cannot be parsed, as
	// "FILE:LINE".
	Torn     []string `json:"torn,omitempty"`
	BadLines []string `json:"bad,omitempty"`

	groupBy []string
	boots   map[uint64]*bootSequence
}

// maxBadLines bounds the lines that a UsageReport lists.
const maxBadLines = 1000

// bootSequence is the set of numbers seen of one boot, as ranges.
type bootSequence struct{ ranges []seqRange }

type seqRange struct{ first, last uint64 }

// addNumber adds a number; false when it was seen before. Files are read in the order of writing, so there are few
// ranges.
func (l *bootSequence) addNumber(n uint64) bool {
	at, found := slices.BinarySearchFunc(l.ranges, n, func(r seqRange, n uint64) int {
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
	before, after := at > 0 && l.ranges[at-1].last+1 == n, at < len(l.ranges) && l.ranges[at].first == n+1
	switch {
	case before && after:
		l.ranges[at-1].last = l.ranges[at].last
		l.ranges = slices.Delete(l.ranges, at, at+1)
	case before:
		l.ranges[at-1].last = n
	case after:
		l.ranges[at].first = n
	default:
		l.ranges = slices.Insert(l.ranges, at, seqRange{n, n})
	}
	return true
}

// maxMissing bounds the count of missing numbers that a corrupt number can cause.
const maxMissing = 1 << 50

func (l *bootSequence) countMissing() (n int64) {
	next := uint64(1)
	for _, r := range l.ranges {
		n += int64(min(r.first-next, maxMissing))
		next = r.last + 1
	}
	return min(n, maxMissing)
}

// ReadFiles sums files and directories of files, each record once. by are the GroupingKeys to group by.
func ReadFiles(paths, by []string) (*UsageReport, error) {
	for _, p := range by {
		if !slices.Contains(GroupingKeys(), p) {
			return nil, fmt.Errorf("usage cannot be split by %q: it can by %s", p, strings.Join(GroupingKeys(), ", "))
		}
	}
	r := &UsageReport{groupBy: by, Totals: map[TotalKey]Total{}, boots: map[uint64]*bootSequence{}}
	for _, path := range paths {
		files, err := listFiles(path)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if err := r.readFile(f); err != nil {
				return nil, err
			}
		}
	}
	for _, l := range r.boots {
		r.Missing += l.countMissing()
	}
	return r, nil
}

func listFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("listing usage records: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "usage-*.jsonl"))
	slices.Sort(files)
	return files, err
}

func (r *UsageReport) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening usage records: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
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
			r.addBadLine(name, n)
			continue
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		}
		rec, err := DecodeRecord(line[:len(line)-1])
		if err != nil {
			r.addBadLine(name, n)
			continue
		}
		r.addRecord(&rec)
	}
}

func (r *UsageReport) addBadLine(name string, line int) {
	if len(r.BadLines) < maxBadLines {
		r.BadLines = append(r.BadLines, fmt.Sprintf("%s:%d", name, line))
	}
}

func (r *UsageReport) addRecord(rec *UsageRecord) {
	l := r.boots[rec.Boot]
	if l == nil {
		l = &bootSequence{}
		r.boots[rec.Boot] = l
	}
	if !l.addNumber(rec.Seq) {
		r.Duplicates++
		return
	}
	r.Records++
	var k TotalKey
	for _, p := range r.groupBy {
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
	t.addRecord(rec)
	r.Totals[k] = t
}
