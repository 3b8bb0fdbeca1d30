package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCachedTraceYieldsTheSameArrivals: a cached trace yields the same as the file, any number of times, and after
// changes to the prompts that it returned.
func TestCachedTraceYieldsTheSameArrivals(t *testing.T) {
	play := func(m *mooncakeReader) []Arrival { return readAllArrivals(t, m) }
	text, err := os.ReadFile("testdata/mooncake.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	read := newMooncakeReader(strings.NewReader(string(text)), 7)
	read.mergeBlocks = true
	want := play(read)
	for range 3 {
		trace, err := openCachedTrace("testdata/mooncake.jsonl", 7)
		if err != nil {
			t.Fatal(err)
		}
		m := trace.ArrivalSource.(*mooncakeReader)
		if len(m.parsed) != len(want) {
			t.Fatalf("%d requests are kept of %d", len(m.parsed), len(want))
		}
		got := play(m)
		if !equalArrivals(got, want) {
			t.Fatalf("%+v\nwant %+v", got, want)
		}
		for i := range got {
			clear(got[i].Prompt)
		}
		if err := trace.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func equalArrivals(a, b []Arrival) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].At != b[i].At || a[i].Output != b[i].Output || a[i].Session != b[i].Session || len(a[i].Prompt) != len(b[i].Prompt) {
			return false
		}
		for k := range a[i].Prompt {
			if a[i].Prompt[k] != b[i].Prompt[k] {
				return false
			}
		}
	}
	return true
}

// TestTraceCacheFollowsTheFile: a changed file is read again, a removed one is gone, and one that is too long or
// invalid is not cached.
func TestTraceCacheFollowsTheFile(t *testing.T) {
	const first, second = `{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}` + "\n",
		`{"timestamp": 1000, "input_length": 20, "output_length": 1, "hash_ids": [2]}` + "\n"
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	s := &traceCache{bytesLeft: 4 * len(first), files: map[string]*cachedTrace{}}
	write(first, time.Unix(1000, 0))
	if n := len(s.readArrivals(path)); n != 1 {
		t.Fatalf("%d requests, want 1", n)
	}
	rates := 0
	measure := func() (float64, error) { rates++; return float64(rates), nil }
	for range 3 {
		if r, err := s.readRate(path, measure); r != 1 || err != nil {
			t.Fatalf("rate %v, %v: it is measured once", r, err)
		}
	}
	write(first+second, time.Unix(2000, 0))
	if n := len(s.readArrivals(path)); n != 2 {
		t.Fatalf("%d requests after a change, want 2", n)
	}
	if r, err := s.readRate(path, measure); r != 2 || err != nil {
		t.Fatalf("rate %v, %v: that of the file before", r, err)
	}
	write(first+"nonsense\n", time.Unix(3000, 0))
	if n := len(s.readArrivals(path)); n != 0 {
		t.Fatalf("%d requests of a trace with a mistake are kept", n)
	}
	write(strings.Repeat(first, 5), time.Unix(4000, 0))
	if text, ok := s.readText(path); ok {
		t.Fatalf("%d bytes are kept, more than there is room for", len(text))
	}
	if s.bytesLeft != 4*len(first) || len(s.files) != 0 {
		t.Fatalf("room for %d bytes with %d files kept, want %d and none", s.bytesLeft, len(s.files), 4*len(first))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.readText(path); ok {
		t.Fatal("a file that has gone is still kept")
	}
}
