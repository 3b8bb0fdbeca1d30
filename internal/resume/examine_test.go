package resume

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestExamineRequestReasons(t *testing.T) {
	chat := func(more string) string {
		return `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"x"}],"stream":true` + more + `}`
	}
	for _, c := range []struct {
		body string
		why  NotResumableReason
	}{
		{chat(``), Resumable},
		{chat(`,"temperature":1,"seed":7,"max_tokens":5,"max_completion_tokens":9,"n":1,"stop":null,"tools":[],"response_format":{"type": "text"},"logit_bias":{"1":2}`), Resumable},
		{chat(`,"stop":[],"frequency_penalty":0,"stream_options":{"include_usage":true}`), Resumable},
		{chat(`,"n":2`), Choices},
		{chat(`,"best_of":3`), Choices},
		{chat(`,"tools":[{"type":"function"}]`), Tools},
		{chat(`,"tool_choice":"required"`), Tools},
		{chat(`,"response_format":{"type":"json_object"}`), Structured},
		{chat(`,"guided_regex":"a+"`), Structured},
		{chat(`,"structured_outputs":{"json":{}}`), Structured},
		{chat(`,"logprobs":true`), Logprobs},
		{chat(`,"stop":"\n"`), Stop},
		{chat(`,"stop_token_ids":[5]`), Stop},
		{chat(`,"presence_penalty":0.5`), Penalties},
		{chat(`,"min_tokens":5`), MinTokens},
		{chat(`,"echo":true`), Prompt},
		{chat(`,"chat_template":"x"`), Template},
		{chat(`,"add_generation_prompt":false`), Template},
		{chat(`,"continue_final_message":true`), Template},
		{chat(`,"vllm_xargs":{"a":1}`), Parameter},
		{chat(`,"stream_options":{"continuous_usage_stats":true}`), Parameter},
		{chat(`,"max_tokens":-1`), Parameter},
		{`{"messages":[{"role":"user","content":"x"}]}`, UnsupportedPath},
		{`{"messages":[],"stream":true}`, Prompt},
		{`{"messages":[{"role":"user","content":[{"type":"image_url"}]}],"stream":true}`, Prompt},
		{`{"messages":[{"role":"assistant","content":"x"}],"stream":true}`, Template},
		{`{"prompt":"x","stream":true}`, Prompt},
	} {
		if _, why := ExamineRequest([]byte(c.body), openai.PathChat, false); why != c.why {
			t.Errorf("%s: %q, want %q", c.body, why, c.why)
		}
	}
	for body, want := range map[string]NotResumableReason{
		`{"prompt":"x","stream":true}`: Resumable, `{"prompt":[1,2],"stream":true}`: Prompt, `{"prompt":["x"],"stream":true}`: Prompt,
		`{"prompt":"x","suffix":"y","stream":true}`: Prompt, `{"prompt":"x","echo":true,"stream":true}`: Prompt, `{"prompt":"x","logprobs":0,"stream":true}`: Logprobs,
	} {
		if _, why := ExamineRequest([]byte(body), openai.PathCompletions, false); why != want {
			t.Errorf("%s: %q, want %q", body, why, want)
		}
	}
	if _, why := ExamineRequest([]byte(chat("")), openai.PathResponses, false); why != UnsupportedPath {
		t.Errorf("responses: %q", why)
	}
}

// A continuation may itself be continued: the text is inserted into the existing message.
func TestContinuationCanBeContinued(t *testing.T) {
	body := []byte(`{"messages":[{"role":"user","content":"q"}],"stream":true,"max_tokens":10}`)
	for i, text := range []string{`one`, ` \"two\"`, ` three`} {
		q, why := ExamineRequest(body, openai.PathChat, i > 0)
		if why != Resumable {
			t.Fatal(why)
		}
		body = q.ContinuationBody(body, []byte(text), 9-i)
	}
	want := `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one \"two\" three"}],"stream":true,"max_tokens":7,"continue_final_message":true,"add_generation_prompt":false}`
	if string(body) != want {
		t.Errorf("it is\n%s, want\n%s", body, want)
	}
}

const deltaEvent = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"

// An unresumable stream passes unchanged, and the reason is reported.
func TestUnresumableStreamsPassUnchanged(t *testing.T) {
	for _, c := range []struct {
		stream string
		why    NotResumableReason
	}{
		{deltaEvent + `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n" + deltaEvent, NonTextDelta},
		{deltaEvent + `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":1}]}}]}` + "\n\n" + deltaEvent, NonTextDelta},
		{deltaEvent + `data: {"choices":[{"index":1,"delta":{"content":"y"}}]}` + "\n\n" + deltaEvent, EventForm},
		{deltaEvent + "event: x\ndata: {}\n\n" + deltaEvent, EventForm},
		{deltaEvent + "data: nonsense\n\n" + deltaEvent, EventForm},
		{strings.ReplaceAll(deltaEvent, "\n", "\r") + deltaEvent, EventForm},
		{deltaEvent + "data: " + strings.Repeat("x", 2*maxEventBytes), EventForm},
		{strings.Repeat(deltaEvent, 100), TextTooLong},
		{": ping\n\n" + deltaEvent, Resumable},
	} {
		s := newTestSplicer(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
		s.limits.MaxTextBytes = 50
		var out bytes.Buffer
		for i := range len(c.stream) {
			out.Write(s.PassChunk([]byte(c.stream[i : i+1])))
		}
		out.Write(s.PartialEvent())
		if out.String() != c.stream || s.WhyNotResumable() != c.why {
			t.Errorf("%.60q: %q, want %q; passed %d bytes of %d", c.stream, s.WhyNotResumable(), c.why, out.Len(), len(c.stream))
		}
		if body, end := s.CutStream(0, 1); (body != nil || end != nil) != (c.why == Resumable) {
			t.Errorf("%.60q: cut to %q and %q", c.stream, body, end)
		}
	}
}

// An error event of an engine counts as its failure: the event is held back.
func TestErrorEventIsHeldBack(t *testing.T) {
	s := newTestSplicer(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	failure := `data: {"error":{"message":"CUDA out of memory"}}` + "\n\n"
	if got := s.PassChunk([]byte(deltaEvent + failure + "data: [DONE]\n\n")); string(got) != deltaEvent || string(s.ErrorEvent()) != failure || s.IsComplete() {
		t.Errorf("passed %q, held %q", got, s.ErrorEvent())
	}
	if body, _ := s.CutStream(0, 1); !strings.Contains(string(body), `"assistant","content":"x"`) {
		t.Errorf("goes on with %s", body)
	}
}

// Space for texts is reserved, and refused space is not used.
func TestTextsShareOneBound(t *testing.T) {
	room := 2000
	var streams []*Splicer
	for range 20 {
		s := newTestSplicer(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
		s.text.store = &boundedStorage{room: &room}
		s.PassChunk([]byte(deltaEvent))
		streams = append(streams, s)
	}
	held, refused := 0, 0
	for _, s := range streams {
		held += s.ReservedBytes()
		if s.WhyNotResumable() == NoTextMemory {
			refused++
		}
	}
	if held > 2000 || held == 0 || refused == 0 || refused == 20 {
		t.Errorf("%d bytes held, %d streams refused", held, refused)
	}
}

// Events with many tokens are counted by bytes.
func TestLargeEventsAreCountedByBytes(t *testing.T) {
	s := newTestSplicer(t, openai.PathCompletions, `{"prompt":"x","stream":true,"max_tokens":1000}`, false)
	s.PassChunk([]byte(`data: {"choices":[{"index":0,"text":"` + strings.Repeat("word ", 80) + `"}]}` + "\n\n"))
	if n := s.CountTokens(); n != 100 {
		t.Errorf("400 bytes in one event are %d tokens", n)
	}
}

func FuzzSplicer(f *testing.F) {
	for _, chat := range []bool{true, false} {
		w := fakeEngine{chat: chat, tokens: sampleTokens, fullText: strings.Join(sampleTokens, ""), prompt: 3, id: "x", ending: "\n\n"}
		f.Add(strings.Join(w.streamAnswer("", 0), ""), uint8(7), 90, chat)
	}
	f.Add(deltaEvent+"\n\r\n"+deltaEvent+"data: {\"error\":1}\r\n\r\n", uint8(1), 30, true)
	f.Add("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\\\"}}]}\n\n", uint8(3), 200, true)
	f.Fuzz(func(t *testing.T, stream string, piece uint8, cut int, chat bool) {
		body, path := `{"prompt":"x","stream":true,"max_tokens":100}`, openai.PathCompletions
		if chat {
			body, path = `{"messages":[{"role":"user","content":"x"}],"stream":true}`, openai.PathChat
		}
		q, _ := ExamineRequest([]byte(body), path, false)
		s := NewSplicer(q, []byte(body), 4, SpliceLimits{MaxTextBytes: 4096})
		cut = min(max(cut, 0), len(stream))
		pass := func(stream string) (out string) {
			for n := int(piece) + 1; len(stream) > 0; stream = stream[min(n, len(stream)):] {
				out += string(s.PassChunk([]byte(stream[:min(n, len(stream))])))
			}
			return out
		}
		out := pass(stream[:cut])
		if !strings.HasPrefix(stream, out) {
			t.Fatalf("what passed is not the stream: %q of %q", out, stream)
		}
		if s.ErrorEvent() == nil && out+string(s.PartialEvent()) != stream[:cut] {
			t.Fatalf("lost %q", stream[len(out):cut])
		}
		if s.text.size > 4096 || len(s.partialEvent) > maxEventBytes+256 {
			t.Fatal("too much is held")
		}
		next, end := s.CutStream(0, 5)
		if next == nil && end == nil {
			return
		}
		if next != nil && !json.Valid(next) {
			t.Fatalf("goes on with what is no JSON: %q", next)
		}
		pass(stream[cut:])
		s.UsageOrEstimate(1)
	})
}

func FuzzExamineRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"stream":true,"max_tokens":3}`), true, true)
	f.Add([]byte(`{"prompt":"x","stream":true,"stop":[]}`), false, false)
	f.Fuzz(func(t *testing.T, body []byte, chat, continued bool) {
		path := openai.PathCompletions
		if chat {
			path = openai.PathChat
		}
		q, why := ExamineRequest(body, path, continued)
		if why != Resumable || !json.Valid(body) {
			return
		}
		if out := q.ContinuationBody(body, []byte(`more`), 3); !json.Valid(out) || !bytes.Contains(out, []byte("more")) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

func BenchmarkPassPlainEvents(b *testing.B) {
	s := newTestSplicer(b, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.limits.MaxTextBytes = 1 << 40
	ev := []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" cat"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	b.ReportAllocs()
	for b.Loop() {
		s.PassChunk(ev)
		s.text.tail, s.text.size = s.text.tail[:0], 0
	}
}
