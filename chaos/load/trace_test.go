package load

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// readAllArrivals plays a source to its end.
func readAllArrivals(t testing.TB, s ArrivalSource) []Arrival {
	t.Helper()
	var list []Arrival
	for {
		a, err := s.NextArrival()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(list); n > 0 && a.At < list[n-1].At {
			t.Fatalf("arrival %d is due at %v, before the one at %v", n, a.At, list[n-1].At)
		}
		if a.PromptTokens() < 1 || a.Output < 1 {
			t.Fatalf("arrival %d: %d tokens in, %d out", len(list), a.PromptTokens(), a.Output)
		}
		list = append(list, a)
	}
}

func openTrace(t testing.TB, path string, seed uint64) *Trace {
	t.Helper()
	trace, err := OpenTrace(path, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trace.Close() })
	return trace
}

// publicTracePath returns the path of a public trace, and skips the test if it is not there.
func publicTracePath(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(testkit.TracesDir(t), filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SPILLWAY_TRACES does not hold %s: %v", name, err)
	}
	return path
}

func meanOf(list []Arrival, of func(*Arrival) int) float64 {
	sum := 0
	for i := range list {
		sum += of(&list[i])
	}
	return float64(sum) / float64(len(list))
}

func promptLength(a *Arrival) int { return a.PromptTokens() }
func outputLength(a *Arrival) int { return a.Output }

func isNear(got, want, tolerance float64) bool {
	return got >= want*(1-tolerance) && got <= want*(1+tolerance)
}

func TestAzureTrace(t *testing.T) {
	list := readAllArrivals(t, openTrace(t, publicTracePath(t, "azure2023/AzureLLMInferenceTrace_conv.csv.gz"), 1))
	if len(list) != 19366 {
		t.Errorf("%d requests, want 19,366", len(list))
	}
	if span := list[len(list)-1].At; !isNear(span.Seconds(), 3502, 0.001) {
		t.Errorf("span %v", span)
	}
	if in, out := meanOf(list, promptLength), meanOf(list, outputLength); !isNear(in, 1155, 0.001) || !isNear(out, 211, 0.005) {
		t.Errorf("means %.0f in, %.0f out; published 1,155 and 211", in, out)
	}
	if list[0].At != 0 || list[0].PromptTokens() != 374 || list[0].Output != 44 {
		t.Errorf("first request %+v", list[0])
	}
}

func TestMooncakeConversation(t *testing.T) {
	list := readAllArrivals(t, openTrace(t, publicTracePath(t, "mooncake/conversation_0-2640s.jsonl.gz"), 1))
	if len(list) != 8722 {
		t.Errorf("%d requests, want 8,722", len(list))
	}
	zero := 0
	for i := range list {
		if i > 0 && list[i].At == list[i-1].At {
			zero++
		}
		if list[i].Prompt[0].ID != list[0].Prompt[0].ID {
			t.Fatalf("request %d does not begin with the block that all share", i)
		}
	}
	if zero > len(list)/1000 {
		t.Errorf("%d of the gaps are zero: the trace is still rounded", zero)
	}
	if last := list[len(list)-1].At; last < 2636*time.Second || last > 2643*time.Second {
		t.Errorf("ends at %v", last)
	}
}

func TestMooncakeSynthetic(t *testing.T) {
	list := readAllArrivals(t, openTrace(t, publicTracePath(t, "mooncake/synthetic.jsonl.gz"), 1))
	if len(list) != 3993 || !isNear(meanOf(list, promptLength), 15325, 0.001) || !isNear(meanOf(list, outputLength), 149, 0.005) {
		t.Errorf("%d requests, means %.0f in, %.0f out", len(list), meanOf(list, promptLength), meanOf(list, outputLength))
	}
	if list[2].At != 40*time.Millisecond || list[3].At != 277*time.Millisecond {
		t.Errorf("an exact clock was changed: %v, %v", list[2].At, list[3].At)
	}
}

func TestAzureSample(t *testing.T) {
	list := readAllArrivals(t, openTrace(t, "testdata/azure.csv", 1))
	if len(list) != 40 || list[0].At != 0 {
		t.Fatalf("%d requests from %v", len(list), list[0].At)
	}
	seen := map[uint64]bool{}
	for _, a := range list {
		if len(a.Prompt) != 1 || seen[a.Prompt[0].ID] {
			t.Fatal("two prompts share their text")
		}
		seen[a.Prompt[0].ID] = true
	}
}

func TestMooncakeSample(t *testing.T) {
	first := readAllArrivals(t, openTrace(t, "testdata/mooncake.jsonl", 1))
	again := readAllArrivals(t, openTrace(t, "testdata/mooncake.jsonl", 1))
	other := readAllArrivals(t, openTrace(t, "testdata/mooncake.jsonl", 2))
	moved := 0
	for i := range first {
		if first[i].At != again[i].At {
			t.Fatal("one seed, two runs")
		}
		if first[i].At != other[i].At {
			moved++
		}
		for _, p := range first[i].Prompt[:len(first[i].Prompt)-1] {
			if p.Tokens != mooncakeBlockTokens {
				t.Errorf("a block inside a prompt has %d tokens", p.Tokens)
			}
		}
	}
	if moved == 0 {
		t.Error("the seed changes nothing")
	}
	if last := first[len(first)-1].At; last < 15*time.Second || last > 18*time.Second {
		t.Errorf("the last bucket's last arrival is due at %v", last)
	}
}

func TestBadTracesAreRejected(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"fields", "TIMESTAMP,ContextTokens,GeneratedTokens\n2030-01-01 00:00:00.0,1\n", "line 2: 2 fields"},
		{"time", "2030-13-01 00:00:00.0,1,1\n", "line 1: reading the time"},
		{"count", "2030-01-01 00:00:00.0,1,-1\n", "GeneratedTokens"},
		{"JSON", `{"timestamp":0,"input_length":1,"output_length":1}` + "\n{\n", "line 2: reading the record"},
		{"no time", `{"input_length":1,"output_length":1}`, "timestamp"},
		{"huge", `{"timestamp":0,"input_length":99999999,"output_length":1}`, "not lengths"},
		{"long line", "2030-01-01 00:00:00.0," + strings.Repeat("1", 9000), "token too long"},
		{"other", "hello", "unknown format"},
		{"empty", "", "first byte"},
		{"broken gzip", "\x1f\x8b\x00", "gzip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ReadTrace(strings.NewReader(c.text), 1)
			for err == nil {
				_, err = s.NextArrival()
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
	if _, err := OpenTrace("testdata/none", 1); err == nil || !strings.Contains(err.Error(), "testdata/none") {
		t.Errorf("a missing file: %v", err)
	}
}

func fuzzArrivalSource(f *testing.F, open func(io.Reader) ArrivalSource) {
	f.Fuzz(func(t *testing.T, text string) {
		s := open(strings.NewReader(text))
		last := time.Duration(0)
		for range 1000 {
			a, err := s.NextArrival()
			if err != nil {
				return
			}
			if a.At < last || a.PromptTokens() < 1 || a.PromptTokens() > maxTraceTokens || a.Output < 1 || a.Output > maxTraceTokens {
				t.Fatalf("after %v: %v, %d in, %d out", last, a.At, a.PromptTokens(), a.Output)
			}
			last = a.At
		}
	})
}

func FuzzAzure(f *testing.F) {
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2030-01-01 00:00:00.1234567,1,2\n2029-01-01 00:00:00.0,0,0\n")
	fuzzArrivalSource(f, func(r io.Reader) ArrivalSource { return ReadAzure(r, 1) })
}

func FuzzMooncake(f *testing.F) {
	f.Add(`{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[0,1]}` + "\n" + `{"timestamp":0,"input_length":9,"output_length":1,"hash_ids":[0]}`)
	fuzzArrivalSource(f, func(r io.Reader) ArrivalSource { return ReadMooncake(r, 1) })
}

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

// TestRepeatedTraceUsesNewSessions: after a trace's end the same requests repeat with new sessions and prompts, and
// with the same sharing among them. Without repeat the feed reports where the trace ended.
func TestRepeatedTraceUsesNewSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	text := `{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 4000, "input_length": 1536, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 8000, "input_length": 512, "output_length": 5, "hash_ids": [9]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := Workload{Name: "w3", Trace: path, For: time.Minute, Seed: 1}
	f := openWorkload(t, w)
	if n := len(playFeed(t, f, math.MaxInt, answerInstantly)); n != 3 {
		t.Errorf("%d requests of 3", n)
	}
	if at, short := f.EarlyEnd(); !short || at > 10*time.Second {
		t.Errorf("ended at %v, %v", at, short)
	}
	w.Repeat = true
	f = openWorkload(t, w)
	list := playFeed(t, f, math.MaxInt, answerInstantly)
	if _, short := f.EarlyEnd(); short || len(list) < 12 {
		t.Fatalf("%d requests in a minute, short %v", len(list), short)
	}
	seen := map[uint64]int{}
	for i, r := range list {
		if before, again := seen[r.Session]; again && before/3 != i/3 {
			t.Errorf("request %d is of the session of request %d", i, before)
		}
		seen[r.Session] = i
		if i > 0 && r.At < list[i-1].At {
			t.Errorf("request %d is due at %v, after %v", i, r.At, list[i-1].At)
		}
		if i >= 3 {
			if gpu.CountCommonTokens(r.Prompt, list[i-3].Prompt) > 0 {
				t.Errorf("request %d repeats the prompt of the lap before", i)
			}
			if r.PromptTokens != list[i-3].PromptTokens {
				t.Errorf("request %d has %d tokens, %d in the lap before", i, r.PromptTokens, list[i-3].PromptTokens)
			}
		}
		if i%3 == 1 && gpu.CountCommonTokens(r.Prompt, list[i-1].Prompt) < 1000 {
			t.Errorf("request %d shares nothing with the one before it", i)
		}
	}
}
