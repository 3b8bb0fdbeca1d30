package load

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

// TestRecordReplaysTheSameRequests: a live run against a simulated worker is recorded; its record as a source and as
// a feed has the same requests at the same times, and their outcomes.
func TestRecordReplaysTheSameRequests(t *testing.T) {
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "m", Speed: 50})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer w.Stop(t.Context())
	var file bytes.Buffer
	recorder := NewRecorder(&file)
	prompt := []Piece{{ID: mixBits(7), Tokens: 320}, {ID: 1<<63 + 5, Tokens: 33}}
	asked := []Arrival{{At: 0, Prompt: prompt, Output: 5}, {At: 123456789, Prompt: prompt, Output: 7, Session: 1<<63 + 9}, {At: time.Second / 4, Prompt: prompt[:1], Output: 3}}
	source := arrivalList(slices.Clone(asked))
	runGenerator(t, Config{Source: &source, Target: Target{URLs: []string{w.URL()}}, Stream: true, Recorder: recorder})
	if err := recorder.Flush(); err != nil {
		t.Fatal(err)
	}
	again, err := ReadTrace(bytes.NewReader(file.Bytes()), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range readAllArrivals(t, again) {
		if a.At != asked[i].At || !slices.Equal(a.Prompt, asked[i].Prompt) || a.Output != asked[i].Output || asked[i].Session != 0 && a.Session != asked[i].Session {
			t.Errorf("request %d is %+v, was %+v", i, a, asked[i])
		}
	}
	path := filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	list := playFeed(t, openWorkload(t, Workload{Name: "recorded", Trace: path}), 100, answerInstantly)
	if len(list) != len(asked) || list[1].At != asked[1].At || list[1].Session != 1<<63+9 {
		t.Fatalf("%d requests, %+v", len(list), list[1])
	}
	outcomes, err := ReadOutcomes(path)
	if err != nil || len(outcomes) != len(asked) {
		t.Fatalf("%v %v", outcomes, err)
	}
	cached := 0
	for id, d := range outcomes {
		if d.Kind != "ok" || d.First <= 0 || d.End < d.First || d.Output != asked[id-1].Output {
			t.Errorf("request %d: %+v", id, d)
		}
		cached = max(cached, d.Cached)
	}
	if cached < 304 {
		t.Errorf("at most %d tokens were cached of a prompt that came twice", cached)
	}
}

func TestBadRecordsAreRejected(t *testing.T) {
	for says, line := range map[string]string{
		"line 1: reading":         `{"due":x}`,
		"not a piece":             `{"due":1,"prompt":["1-2"],"output":1}`,
		"line 1: prompt: is empt": `{"due":1,"output":1}`,
		"output: 0":               `{"due":1,"prompt":["1:2"],"output":0}`,
		"due: -1":                 `{"due":-1,"prompt":["1:2"],"output":1}`,
		"count from 0":            `{"due":1,"prompt":["1:2"],"output":1,"tenant":-1}`,
		"line 2: first and end":   `{"due":1,"prompt":["1:2"],"output":1}` + "\n" + `{"id":1,"first":-1}`,
	} {
		s, err := ReadTrace(strings.NewReader(line), 1)
		for err == nil {
			_, err = s.NextArrival()
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", line, err, says)
		}
	}
	if _, err := OpenWorkload(Workload{Name: "recorded"}); err == nil || !strings.Contains(err.Error(), "name the file") {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"due":0.5,"id":1,"session":"7","prompt":["ff:12","1:3"],"output":4}` + "\n" + `{"id":1,"verdict":"ok","first":0.1,"end":0.2,"output":4}`)
	fuzzArrivalSource(f, func(r io.Reader) ArrivalSource { return newRecordReader(r) })
}
