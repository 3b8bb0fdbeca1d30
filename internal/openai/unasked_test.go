package openai_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

const usageEvent = `data: {"id":"1","choices":[],"usage":{"prompt_tokens":17,"completion_tokens":2}}`

// filterInChunks passes text through a filter, split by cut.
func filterInChunks(text string, cut func(left int) int) string {
	var f openai.UsageFilter
	var out strings.Builder
	for rest := text; rest != ""; {
		n := cut(len(rest))
		out.Write(f.FilterChunk([]byte(rest[:n])))
		rest = rest[n:]
	}
	out.Write(f.HeldBytes())
	return out.String()
}

func inOneChunk(left int) int { return left }
func inSingleBytes(int) int   { return 1 }

func TestUsageFilterRemovesOnlyUsageEvent(t *testing.T) {
	long := `data: {"choices":[],"usage":{"x":"` + strings.Repeat("x", 32<<10) + `"}}` + "\n\n"
	for _, tc := range []struct{ name, in, want string }{
		{"at the end", "data: {\"choices\":[{}]}\n\n" + usageEvent + "\n\ndata: [DONE]\n\n", "data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n"},
		{"carriage returns and line feeds", "data: x\r\n\r\n" + usageEvent + "\r\n\r\ndata: [DONE]\r\n\r\n", "data: x\r\n\r\ndata: [DONE]\r\n\r\n"},
		{"bare carriage returns", "data: x\r\r" + usageEvent + "\r\rdata: [DONE]\r\r", "data: x\r\rdata: [DONE]\r\r"},
		{"white space in empty choices", "data:{ \"choices\" : [ ] , \"usage\" : {} }\n\n", ""},
		{"usage beside choices", "data: {\"choices\":[{}],\"usage\":{}}\n\n", "data: {\"choices\":[{}],\"usage\":{}}\n\n"},
		{"null usage", "data: {\"choices\":[],\"usage\":null}\n\n", "data: {\"choices\":[],\"usage\":null}\n\n"},
		{"an error", "data: {\"choices\":[],\"usage\":{},\"error\":{}}\n\n", "data: {\"choices\":[],\"usage\":{},\"error\":{}}\n\n"},
		{"a filter's verdict on the prompt", "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n", "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n"},
		{"another field", "id: 7\n" + usageEvent + "\n\n", "id: 7\n" + usageEvent + "\n\n"},
		{"a comment", ": ping\n\n", ": ping\n\n"},
		{"no end", "data: x\n\n" + usageEvent, "data: x\n\n" + usageEvent},
		{"broken JSON", "data: {\"choices\":[],\"usage\":{}\n\n", "data: {\"choices\":[],\"usage\":{}\n\n"},
		{"too long to be one", long, long},
		{"blank lines", "\n\n\n" + usageEvent + "\n\n\n\n", "\n\n\n\n\n"},
	} {
		for name, cut := range map[string]func(int) int{"whole": inOneChunk, "byte by byte": inSingleBytes} {
			if got := filterInChunks(tc.in, cut); got != tc.want {
				t.Errorf("%s, %s: got %.200q, want %.200q", tc.name, name, got, tc.want)
			}
		}
	}
}

// For any split of a stream, an event is passed with its last byte.
func TestUsageFilterNeverDelaysWholeEvent(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		var f openai.UsageFilter
		event := `data: {"choices":[{"text":"a"}]}` + end
		for range 3 {
			got := ""
			for i := range len(event) {
				got += string(f.FilterChunk([]byte{event[i]}))
			}
			if strings.TrimRight(got, "\r\n") != strings.TrimRight(event, "\r\n") {
				t.Errorf("end %q: %q passed of %q", end, got, event)
			}
		}
	}
}

func TestUsageFilterPropertyPartsMakeTheOriginal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "line end")
		kinds := rapid.SampledFrom([]string{`data: {"choices":[{"delta":{"content":"a"}}],"usage":null}`, ": ping", "event: x" + end + "data: y", usageEvent, "data: [DONE]", "data: {"})
		in, want := "", ""
		for _, e := range rapid.SliceOf(kinds).Draw(t, "events") {
			in += e + end + end
			if e != usageEvent {
				want += e + end + end
			}
		}
		cut := func(left int) int { return rapid.IntRange(1, left).Draw(t, "cut") }
		if got := filterInChunks(in, cut); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// The output of the filter does not depend on the split, and it removes exactly the usage events.
func FuzzUsageFilter(f *testing.F) {
	f.Add([]byte("data: x\r\n\r\n"+usageEvent+"\r\n\r\ndata: [DONE]\r\n\r\n"), uint8(3))
	f.Add([]byte(chatStream), uint8(7))
	f.Add([]byte(usageEvent+"\r\r\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		if len(stream) > 8<<10 {
			return // longer events pass unchanged, depending on the split
		}
		in := string(stream)
		got := filterInChunks(in, inOneChunk)
		if cut := filterInChunks(in, func(left int) int { return min(left, int(step)+1) }); cut != got {
			t.Fatalf("whole %q, cut %q", got, cut)
		}
		if want := referenceFilter(in); got != want {
			t.Fatalf("got %q, want %q of %q", got, want, in)
		}
	})
}

// referenceFilter does the same by splitting and decoding.
func referenceFilter(in string) string {
	out, event := "", ""
	text := false
	for i := 0; i < len(in); {
		j := i
		for j < len(in) && in[j] != '\r' && in[j] != '\n' {
			j++
		}
		blank := j == i && !text
		text = false
		end := j
		if j < len(in) {
			end++
			if in[j] == '\r' && end < len(in) && in[end] == '\n' {
				end++
			}
		}
		event += in[i:end]
		i = end
		if blank && j < len(in) {
			if !referenceUsage(event) {
				out += event
			}
			event = ""
		}
	}
	return out + event
}

func referenceUsage(event string) bool {
	data, ok := strings.CutPrefix(strings.TrimRight(event, "\r\n"), "data:")
	return ok && !strings.ContainsAny(data, "\r\n") && openai.IsUsageOnly([]byte(data))
}

// What the filter recognizes as a usage event is one to a full JSON decoder too, if it is JSON at all.
func FuzzIsUsageOnly(f *testing.F) {
	f.Add([]byte(`{"choices":[],"usage":{}}`))
	f.Add([]byte(`{"choices":[ ],"usage":{"a":[1,{}]},"timings":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !openai.IsUsageOnly(data) {
			return
		}
		var v map[string]json.RawMessage
		if json.Unmarshal(data, &v) != nil {
			return // the filter checks the structure only
		}
		var choices []json.RawMessage
		if err := json.Unmarshal(v["choices"], &choices); err != nil || len(choices) != 0 {
			t.Fatalf("%q has choices", data)
		}
		if u := bytes.TrimSpace(v["usage"]); len(u) == 0 || u[0] != '{' {
			t.Fatalf("%q has no usage", data)
		}
	})
}

func TestUsageFilterAllocatesNothing(t *testing.T) {
	var f openai.UsageFilter
	chunk := []byte(`data: {"choices":[{"delta":{"content":"a"}}],"usage":null}` + "\n\n" + `data: {"cho`)
	rest := []byte(`ices":[]}` + "\n\n")
	f.FilterChunk(chunk)
	f.FilterChunk(rest)
	if n := testing.AllocsPerRun(100, func() { f.FilterChunk(chunk); f.FilterChunk(rest) }); n != 0 {
		t.Errorf("%v allocations for each chunk", n)
	}
}

// bodyWithUsage returns a body that asks for usage, and stores its envelope in env.
func bodyWithUsage(t *testing.T, body []byte, env *openai.Envelope) []byte {
	t.Helper()
	w := openai.NewEditedBody(body)
	w.RequestUsage(env)
	out := w.Bytes()
	if err := openai.ScanChat(out, env); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return out
}

func TestRequestUsage(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{` {"stream":true,"model":"m","stream_options":null}`, ` {"stream":true,"model":"m","stream_options":{"include_usage":true}}`},
		{`{"stream":true,"stream_options":{},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`},
		{`{"stream":true,"stream_options":{ "a":[1] },"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true, "a":[1] },"model":"m"}`},
		{`{"stream":true,"stream_options":{"a":1,"include_usage" : false},"model":"m"}`, `{"stream":true,"stream_options":{"a":1,"include_usage" : true},"model":"m"}`},
		{`{"stream":true,"stream_options":{"include_usage":null},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`},
		{`{"stream":true,"stream_options":{"continuous_usage_stats":false},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false},"model":"m"}`},
	} {
		var env openai.Envelope
		if err := openai.ScanChat([]byte(tc.in), &env); err != nil {
			t.Fatal(err)
		}
		if !env.MayRequestUsage() {
			t.Errorf("%s: may not ask", tc.in)
			continue
		}
		got := bodyWithUsage(t, []byte(tc.in), &env)
		if string(got) != tc.want {
			t.Errorf("%s: got %s, want %s", tc.in, got, tc.want)
		}
		if raw := string(got[env.ModelStart:env.ModelEnd]); raw != `"m"` {
			t.Errorf("%s: the model is taken to be %s", tc.in, raw)
		}
	}
}

func TestUsageIsNotRequestedWhereAmbiguous(t *testing.T) {
	for _, in := range []string{
		`{"model":"m"}`,
		`{"model":"m","stream":false}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":1}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":"yes"}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":false,"include_usage":true}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":false,"include_\u0075sage":false}}`,
		`{"model":"m","stream":true,"stream_options":{"continuous_usage_stats":true}}`,
		`{"model":"m","stream":true,"stream_options":7}`,
		`{"model":"m","stream":true,"stream_options":[]}`,
	} {
		var env openai.Envelope
		if err := openai.ScanChat([]byte(in), &env); err != nil {
			t.Fatal(err)
		}
		if env.MayRequestUsage() {
			t.Errorf("%s: would be asked", in)
		}
	}
}

// For a full decoder, the body differs from the original only by include_usage.
func FuzzRequestUsage(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true}`))
	f.Add([]byte(`{"stream":true,"stream_options":{"a":1,"include_usage":false},"model":"m"}`))
	f.Add([]byte(`{"stream":true,"stream_options":null,"model":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var env openai.Envelope
		if openai.ScanChat(body, &env) != nil || !env.MayRequestUsage() {
			return
		}
		model := string(body[env.ModelStart:env.ModelEnd])
		got := bodyWithUsage(t, body, &env)
		if string(got[env.ModelStart:env.ModelEnd]) != model {
			t.Fatalf("the model moved in %q", got)
		}
		var after openai.Envelope
		if err := openai.ScanChat(got, &after); err != nil || !after.IncludeUsage {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		var a, b map[string]any
		if json.Unmarshal(body, &a) != nil {
			return // the scan checks the structure only
		}
		if err := json.Unmarshal(got, &b); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		options, _ := a["stream_options"].(map[string]any)
		if options == nil {
			options = map[string]any{}
		}
		options["include_usage"] = true
		a["stream_options"] = options
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
