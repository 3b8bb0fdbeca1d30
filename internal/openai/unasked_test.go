package openai_test

import (
	"bytes"
	"encoding/json"
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
