package load

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

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
