package openai_test

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

// TestEditedBodyReadsAsItsBytes: for any split, any edits and any order of members. An engine's scan finds the
// edited values.
func TestEditedBodyReadsAsItsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.Permutation([]string{
			`"model" : "alias"`, `"messages":[{"role":"user","content":"hi \u007d }"}]`, `"stream":true`,
			rapid.SampledFrom([]string{
				`"stream_options":{"include_usage":false}`, `"stream_options":null`, `"stream_options":{}`, `"stream_options":{"x":1}`, `"n":1`,
			}).Draw(t, "options"),
		}).Draw(t, "order")
		raw := []byte(" {" + strings.Join(members, ", ") + "} ")
		was := bytes.Clone(raw)
		var env openai.Envelope
		if err := openai.ScanChat(raw, &env); err != nil {
			t.Fatal(err)
		}
		text := openai.NewEditedBody(raw)
		model, limit, usage := "alias", 0, false
		for _, what := range rapid.Permutation([]string{"model", "limit", "usage"}).Draw(t, "changes")[:rapid.IntRange(0, 3).Draw(t, "how many")] {
			switch what {
			case "model":
				model = rapid.SampledFrom([]string{"alias", "m", `a "quoted" one`, "a-much-longer-model-than-before"}).Draw(t, "model")
				text.SetModel(&env, model)
			case "limit":
				limit = rapid.IntRange(1, 1<<20).Draw(t, "limit")
				text.SetOutputLimit(openai.ShapeChat, &env, limit)
			case "usage":
				usage = true
				text.RequestUsage(&env)
			}
		}
		joined := text.Bytes()
		var after openai.Envelope
		if err := openai.ScanChat(joined, &after); err != nil {
			t.Fatalf("%s: %v", joined, err)
		}
		if after.Model != model || after.MaxTokens != limit || after.IncludeUsage != usage || !bytes.Equal(after.Prompt, env.Prompt) {
			t.Fatalf("%s names %q, %d tokens, usage %v", joined, after.Model, after.MaxTokens, after.IncludeUsage)
		}
		if text.Len() != len(joined) || text.IsEdited() != (&joined[0] != &raw[0]) {
			t.Fatalf("%d bytes of %d, edited %v", text.Len(), len(joined), text.IsEdited())
		}
		var read []byte
		reader := text.NewReader()
		for {
			p := make([]byte, rapid.IntRange(1, 40).Draw(t, "piece"))
			n, err := reader.Read(p)
			if read = append(read, p[:n]...); err == io.EOF {
				break
			}
			if n == 0 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
		if !bytes.Equal(read, joined) || !bytes.Equal(raw, was) {
			t.Fatalf("read  %s\nwhole %s", read, joined)
		}
	})
}

// TestEditedBodyReader: it follows the rules of io.Reader and copies nothing.
func TestEditedBodyReader(t *testing.T) {
	raw := []byte(`{"model":"alias","prompt":"` + strings.Repeat("word ", 44_000) + `"}`)
	var env openai.Envelope
	if err := openai.ScanChat(raw, &env); err != nil {
		t.Fatal(err)
	}
	text := openai.NewEditedBody(raw)
	text.SetModel(&env, "m")
	if err := iotest.TestReader(text.NewReader(), text.Bytes()); err != nil {
		t.Error(err)
	}
	empty := openai.NewEditedBody(nil)
	if err := iotest.TestReader(empty.NewReader(), nil); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 32<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 50
	for range times {
		text := openai.NewEditedBody(raw)
		text.SetModel(&env, "m")
		text.SetOutputLimit(openai.ShapeCompletions, &env, 7)
		for r := text.NewReader(); ; {
			if _, err := r.Read(buf); err != nil {
				break
			}
		}
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / times
	if per > 8<<10 {
		t.Errorf("%d bytes are allocated to name another model in %d", per, len(raw))
	}
}
