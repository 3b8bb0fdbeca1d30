package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

// TestUsageIsFoundAnywhereInBody: also before optional members that a client can request, and in the format of
// each engine.
func TestUsageIsFoundAnywhereInBody(t *testing.T) {
	filler := strings.Repeat(`{"token":17,"logprob":-0.25},`, 40_000)
	for name, tc := range map[string]struct {
		body string
		want openai.TokenUsage
	}{
		"before a long member":  {`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":9,"completion_tokens":8000},"prompt_logprobs":[` + filler[:len(filler)-1] + `]}`, openai.TokenUsage{Prompt: 9, Completion: 8000, Stated: true}},
		"first":                 {`{"usage":{"prompt_tokens":9,"completion_tokens":2},"data":[{"embedding":[` + strings.Repeat("0.125,", 50_000) + `1]}]}`, openai.TokenUsage{Prompt: 9, Completion: 2, Stated: true}},
		"twice, the last holds": {`{"usage":{"prompt_tokens":1,"completion_tokens":1},"usage":{"prompt_tokens":5,"completion_tokens":6}}`, openai.TokenUsage{Prompt: 5, Completion: 6, Stated: true}},
		"inside another member": {`{"choices":[{"usage":{"prompt_tokens":1,"completion_tokens":1}}],"x":{"usage":{"prompt_tokens":1}}}`, openai.TokenUsage{Prompt: 3, Completion: 4}},
		"in a text":             {`{"a":"\"usage\":{\"prompt_tokens\":1}"}`, openai.TokenUsage{Prompt: 3, Completion: 4}},
		"spelt with escapes":    {`{"us\u0061ge":{"prompt_tokens":7,"completion_tokens":1}}`, openai.TokenUsage{Prompt: 7, Completion: 1, Stated: true}},
		"a reranker's":          {`{"results":[],"usage":{"total_tokens":33}}`, openai.TokenUsage{Prompt: 33, Stated: true}},
		"an audio model's":      {`{"text":"hi","usage":{"type":"tokens","input_tokens":14,"output_tokens":3,"total_tokens":17}}`, openai.TokenUsage{Prompt: 14, Completion: 3, Stated: true}},
		"seconds":               {`{"text":"hi","usage":{"type":"duration","seconds":4}}`, openai.TokenUsage{Prompt: 3, Completion: 4}},
		"Ollama's":              {`{"message":{"content":"a"},"done":true,"prompt_eval_count":11,"eval_count":4000}` + "\n", openai.TokenUsage{Prompt: 11, Completion: 4000, Stated: true}},
		"Ollama's stream":       {`{"response":"a"}` + "\n" + `{"response":"b"}` + "\n" + `{"done":true,"eval_count":2}` + "\n", openai.TokenUsage{Prompt: 3, Completion: 2, Stated: true}},
		"a stream cut":          {strings.Repeat(`{"response":"a","done":false}`+"\n", 70), openai.TokenUsage{Prompt: 3, Completion: 70}},
		"SGLang's":              {`{"text":"a","meta_info":{"id":"x","finish_reason":{"type":"length"},"prompt_tokens":6,"completion_tokens":5,"cached_tokens":4}}`, openai.TokenUsage{Prompt: 6, Completion: 5, Cached: 4, Stated: true}},
		"SGLang's batch":        {`[{"text":"a","meta_info":{"prompt_tokens":6,"completion_tokens":5}},{"text":"b","meta_info":{"prompt_tokens":1,"completion_tokens":2}}]`, openai.TokenUsage{Prompt: 7, Completion: 7, Stated: true}},
		"TGI's":                 {`{"generated_text":"a","details":{"finish_reason":"length","generated_tokens":20,"tokens":[{"id":1,"text":"a"}]}}`, openai.TokenUsage{Prompt: 3, Completion: 20, Stated: true}},
		"llama.cpp's":           {`{"content":"a","tokens_predicted":12,"tokens_evaluated":8}`, openai.TokenUsage{Prompt: 8, Completion: 12, Stated: true}},
		"audio":                 {"\xff\xfb\x90\x44 usage {\"usage\":{\"prompt_tokens\":1}}", openai.TokenUsage{Prompt: 3, Completion: 4}},
		"empty":                 {"", openai.TokenUsage{}},
		"too long to be usage":  {`{"usage":{"x":"` + strings.Repeat("y", 20_000) + `","prompt_tokens":1}}`, openai.TokenUsage{Prompt: 3, Completion: 4}},
	} {
		for _, step := range []int{1 << 20, 16 << 10, 7, 1} {
			var m openai.BodyMeter
			for rest := tc.body; rest != ""; {
				n := min(step, len(rest))
				m.AddChunk([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := m.FinalUsage(3, 4); got != tc.want || m.Bytes != int64(len(tc.body)) {
				t.Errorf("%s, in steps of %d: %+v, want %+v", name, step, got, tc.want)
			}
		}
	}
}

// TestUsageInLongEventsIsRead: response.completed repeats the whole response.
func TestUsageInLongEventsIsRead(t *testing.T) {
	long := strings.Repeat("words ", 40_000)
	body := "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"" + long + "\"}]}],\"error\":null,\"usage\":{\"input_tokens\":21,\"output_tokens\":8000}},\"sequence_number\":9}\n\n"
	for _, step := range []int{1 << 20, 16 << 10, 100, 1} {
		m := &openai.StreamMeter{}
		for rest := "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n" + body; rest != ""; {
			n := min(step, len(rest))
			m.AddChunk([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got := m.FinalUsage(3); got != (openai.TokenUsage{Prompt: 21, Completion: 8000, Stated: true}) || !m.Done || m.Failed {
			t.Errorf("in steps of %d: %+v, done %v, failed %v", step, got, m.Done, m.Failed)
		}
	}
	m := &openai.StreamMeter{}
	m.AddChunk([]byte("data: {\"error\":{\"message\":\"" + long + "\"}}\n\n" + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}\n\n"))
	if !m.Failed || m.Usage != (openai.TokenUsage{Prompt: 2, Completion: 3, Stated: true}) {
		t.Errorf("a long error: %+v", m)
	}
}

// FuzzBodyMeter: the usage equals that decoded by encoding/json, for any split.
func FuzzBodyMeter(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"\\\""}],"usage":{"prompt_tokens":17,"completion_tokens":5}}`), 3)
	f.Add([]byte(`{"usage":null,"x":[[],{}],"usage":{"prompt_tokens":1}}`), 1)
	f.Add([]byte(`{"details":{"a":{"usage":1}},"usage" : { "completion_tokens" : 5 } }`), 2)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		step = 1 + int(uint(step)%64)
		var whole, pieces openai.BodyMeter
		whole.AddChunk(body)
		for rest := body; len(rest) > 0; {
			n := min(step, len(rest))
			pieces.AddChunk(rest[:n])
			rest = rest[n:]
		}
		if whole.FinalUsage(3, 4) != pieces.FinalUsage(3, 4) {
			t.Fatalf("%q: %+v, in steps of %d %+v", body, whole.FinalUsage(3, 4), step, pieces.FinalUsage(3, 4))
		}
		var answer struct {
			Usage *struct {
				Prompt     *json.RawMessage `json:"prompt_tokens"`
				Completion *json.RawMessage `json:"completion_tokens"`
			} `json:"usage"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil || len(members) != 1 || members["usage"] == nil || json.Unmarshal(body, &answer) != nil || answer.Usage == nil {
			return
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(members["usage"], &fields) != nil {
			return
		}
		if fields["completion_tokens"] == nil && fields["prompt_tokens"] == nil {
			return
		}
		if got := whole.Usage(); !got.Stated && len(members["usage"]) < 4096 && !strings.Contains(string(body), `\u`) {
			t.Fatalf("%s: nothing is found", body)
		}
	})
}

func BenchmarkBodyMeterChat(b *testing.B) {
	body := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("some words of an answer ", 40) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":17,"completion_tokens":240,"total_tokens":257}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var m openai.BodyMeter
		m.AddChunk(body)
		if !m.Usage().Stated {
			b.Fatal("no usage")
		}
	}
}

func BenchmarkBodyMeterEmbeddings(b *testing.B) {
	body := []byte(`{"data":[{"embedding":[` + strings.Repeat("0.0123456789,", 1023) + `1],"index":0}],"usage":{"prompt_tokens":17,"total_tokens":17}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var m openai.BodyMeter
		m.AddChunk(body)
		if !m.Usage().Stated {
			b.Fatal("no usage")
		}
	}
}

// The usage of Anthropic's streams is assembled from their first and last event.
func TestAnthropicStreamsUsage(t *testing.T) {
	var m openai.StreamMeter
	for _, e := range []string{
		`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"cache_read_input_tokens":7,"cache_creation_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`,
		`{"type":"message_stop"}`,
	} {
		m.AddChunk([]byte("event: x\ndata: " + e + "\n\n"))
	}
	if m.Usage != (openai.TokenUsage{Prompt: 36, Completion: 15, Cached: 7, Stated: true}) || !m.Done || m.Events != 1 || m.Failed {
		t.Errorf("%+v, done %v, %d events", m.Usage, m.Done, m.Events)
	}
}
