package openai_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

const chatStream = `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"content":"he said \"usage\":{\"prompt_tokens\":9}"}}],"usage":null}

: a comment
data: {"id":"1","choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}

data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"1","choices":[],"usage":{"prompt_tokens":17,"completion_tokens":2,"total_tokens":19,"prompt_tokens_details":{"cached_tokens":16}}}

data: [DONE]

`

func checkMeter(t interface{ Fatalf(string, ...any) }, m *openai.StreamMeter, total int) {
	want := openai.TokenUsage{Prompt: 17, Completion: 2, Cached: 16, Stated: true}
	if m.Events != 2 || !m.Done || m.Failed || m.Usage != want || m.Bytes != int64(total) {
		t.Fatalf("meter is %+v, want 2 events, done, usage %+v, %d bytes", *m, want, total)
	}
}

func TestStreamMeterReadsAnyChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m openai.StreamMeter
		rest := chatStream
		for rest != "" {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			m.AddChunk([]byte(rest[:n]))
			rest = rest[n:]
		}
		checkMeter(t, &m, len(chatStream))
	})
}

func TestStreamMeterUnusualStreams(t *testing.T) {
	long := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", 200<<10) + `"}}]}` + "\n\n"
	for _, tc := range []struct {
		name, text string
		events     int64
		done, fail bool
	}{
		{"carriage returns", "data: {\"choices\":[{\"text\":\"a\"}]}\r\n\r\ndata: [DONE]\r\n\r\n", 1, true, false},
		{"error", "data: {\"error\":{\"message\":\"oom\"}}\n\n", 0, false, true},
		{"responses", "event: x\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n", 1, true, false},
		{"longer than is held", long, 1, false, false},
		{"rubbish", "data: {{{{\ndata: \x00\xff\n\nnothing", 0, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m openai.StreamMeter
			for i := 0; i < len(tc.text); i += 1000 {
				m.AddChunk([]byte(tc.text[i:min(i+1000, len(tc.text))]))
			}
			if m.Events != tc.events || m.Done != tc.done || m.Failed != tc.fail {
				t.Fatalf("meter is %+v, want %d events, done %v, failed %v", m, tc.events, tc.done, tc.fail)
			}
			if tc.name == "responses" && m.Usage != (openai.TokenUsage{Prompt: 1, Completion: 1, Stated: true}) {
				t.Fatalf("usage is %+v", m.Usage)
			}
		})
	}
}

func TestStreamMeterAllocatesNothing(t *testing.T) {
	var m openai.StreamMeter
	a, b := []byte(chatStream[:130]), []byte(chatStream[130:])
	m.AddChunk(a)
	m.AddChunk(b)
	if n := testing.AllocsPerRun(1000, func() { m.AddChunk(a); m.AddChunk(b) }); n != 0 {
		t.Fatalf("a stream of 6 events allocates %v times, want 0", n)
	}
}

func TestBodyMeter(t *testing.T) {
	body := `{"id":"1","choices":[{"message":{"content":"` + strings.Repeat("y", 9000) + ` \"usage\":{\"prompt_tokens\":1} "}}],"usage":{"prompt_tokens":17,"completion_tokens":5,"prompt_tokens_details":null}}`
	for _, step := range []int{1, 7, 4096, 5000, 1 << 20} {
		var m openai.BodyMeter
		for i := 0; i < len(body); i += step {
			m.AddChunk([]byte(body[i:min(i+step, len(body))]))
		}
		if got, want := m.Usage(), (openai.TokenUsage{Prompt: 17, Completion: 5, Stated: true}); got != want || m.Bytes != int64(len(body)) {
			t.Fatalf("in steps of %d usage is %+v, want %+v", step, got, want)
		}
	}
	var none openai.BodyMeter
	none.AddChunk([]byte(`{"choices":[]}`))
	if none.Usage().Stated {
		t.Fatal("usage was made up")
	}
}

// FuzzStreamMeter: the meter never panics and never holds more than a line.
func FuzzStreamMeter(f *testing.F) {
	f.Add([]byte(chatStream), 7)
	f.Add([]byte("data:{\"usage\":{\"prompt_tokens\":1"), 1)
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		step = max(1, step%4096)
		var m openai.StreamMeter
		var b openai.BodyMeter
		for i := 0; i < len(text); i += step {
			m.AddChunk(text[i:min(i+step, len(text))])
			b.AddChunk(text[i:min(i+step, len(text))])
		}
		if m.Bytes != int64(len(text)) || b.Bytes != m.Bytes {
			t.Fatalf("%d and %d bytes counted of %d", m.Bytes, b.Bytes, len(text))
		}
		b.Usage()
	})
}

func BenchmarkStreamMeterEvent(b *testing.B) {
	event := []byte("data: {\"id\":\"cmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"llama-8b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n")
	var m openai.StreamMeter
	b.ReportAllocs()
	for b.Loop() {
		m.AddChunk(event)
	}
}

func TestFinalUsageIsStatedOrEstimated(t *testing.T) {
	events := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", 3)
	for _, tc := range []struct {
		name, stream string
		want         openai.TokenUsage
	}{
		{"nothing came", "", openai.TokenUsage{}},
		{"not asked for", "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n" + events + "data: [DONE]\n\n", openai.TokenUsage{Prompt: 40, Completion: 3}},
		{"broken off", events, openai.TokenUsage{Prompt: 40, Completion: 3}},
		{"stated", events + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":7}}\n\n", openai.TokenUsage{Prompt: 9, Completion: 7, Stated: true}},
	} {
		var m openai.StreamMeter
		m.AddChunk([]byte(tc.stream))
		if got := m.FinalUsage(40); got != tc.want {
			t.Errorf("%s: account is %+v, want %+v", tc.name, got, tc.want)
		}
	}
	var m openai.BodyMeter
	if got := m.FinalUsage(40, 8); got != (openai.TokenUsage{}) {
		t.Errorf("an empty body's account is %+v", got)
	}
	m.AddChunk([]byte(`{"choices":[]}`))
	if got := m.FinalUsage(40, 8); got != (openai.TokenUsage{Prompt: 40, Completion: 8}) || got.Source() != "estimated" {
		t.Errorf("account is %+v", got)
	}
	m.AddChunk([]byte(`{"usage":{"prompt_tokens":5,"total_tokens":5}}`))
	if got := m.FinalUsage(40, 8); got != (openai.TokenUsage{Prompt: 5, Stated: true}) || got.Source() != "stated" {
		t.Errorf("account is %+v", got)
	}
}
