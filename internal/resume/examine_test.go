package resume

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestWhatMayBeResumed(t *testing.T) {
	chat := func(more string) string {
		return `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"x"}],"stream":true` + more + `}`
	}
	for _, c := range []struct {
		body string
		why  Reason
	}{
		{chat(``), None},
		{chat(`,"temperature":1,"seed":7,"max_tokens":5,"max_completion_tokens":9,"n":1,"stop":null,"tools":[],"response_format":{"type": "text"},"logit_bias":{"1":2}`), None},
		{chat(`,"stop":[],"frequency_penalty":0,"stream_options":{"include_usage":true}`), None},
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
		{`{"messages":[{"role":"user","content":"x"}]}`, Path},
		{`{"messages":[],"stream":true}`, Prompt},
		{`{"messages":[{"role":"user","content":[{"type":"image_url"}]}],"stream":true}`, Prompt},
		{`{"messages":[{"role":"assistant","content":"x"}],"stream":true}`, Template},
		{`{"prompt":"x","stream":true}`, Prompt},
	} {
		if _, why := Examine([]byte(c.body), openai.PathChat, false); why != c.why {
			t.Errorf("%s: %q, want %q", c.body, why, c.why)
		}
	}
	for body, want := range map[string]Reason{
		`{"prompt":"x","stream":true}`: None, `{"prompt":[1,2],"stream":true}`: Prompt, `{"prompt":["x"],"stream":true}`: Prompt,
		`{"prompt":"x","suffix":"y","stream":true}`: Prompt, `{"prompt":"x","echo":true,"stream":true}`: Prompt, `{"prompt":"x","logprobs":0,"stream":true}`: Logprobs,
	} {
		if _, why := Examine([]byte(body), openai.PathCompletions, false); why != want {
			t.Errorf("%s: %q, want %q", body, why, want)
		}
	}
	if _, why := Examine([]byte(chat("")), openai.PathResponses, false); why != Path {
		t.Errorf("responses: %q", why)
	}
}

// A continuation may be continued in its turn: the text goes into the message that is there.
func TestAContinuationIsContinued(t *testing.T) {
	body := []byte(`{"messages":[{"role":"user","content":"q"}],"stream":true,"max_tokens":10}`)
	for i, text := range []string{`one`, ` \"two\"`, ` three`} {
		q, why := Examine(body, openai.PathChat, i > 0)
		if why != None {
			t.Fatal(why)
		}
		body = q.Body(body, []byte(text), 9-i)
	}
	want := `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one \"two\" three"}],"stream":true,"max_tokens":7,"continue_final_message":true,"add_generation_prompt":false}`
	if string(body) != want {
		t.Errorf("it is\n%s, want\n%s", body, want)
	}
}

const delta = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"

// What cannot be joined passes untouched, and says why it could not be.
func TestStreamsThatAreNotJoinedPassUntouched(t *testing.T) {
	for _, c := range []struct {
		stream string
		why    Reason
	}{
		{delta + `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n" + delta, Delta},
		{delta + `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":1}]}}]}` + "\n\n" + delta, Delta},
		{delta + `data: {"choices":[{"index":1,"delta":{"content":"y"}}]}` + "\n\n" + delta, Form},
		{delta + "event: x\ndata: {}\n\n" + delta, Form},
		{delta + "data: nonsense\n\n" + delta, Form},
		{strings.ReplaceAll(delta, "\n", "\r") + delta, Form},
		{delta + "data: " + strings.Repeat("x", 2*maxEvent), Form},
		{strings.Repeat(delta, 100), TooLong},
		{": ping\n\n" + delta, None},
	} {
		s := newSeam(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
		s.bounds.Text = 50
		var out bytes.Buffer
		for i := range len(c.stream) {
			out.Write(s.Pass([]byte(c.stream[i : i+1])))
		}
		out.Write(s.Rest())
		if out.String() != c.stream || s.Why() != c.why {
			t.Errorf("%.60q: %q, want %q; passed %d bytes of %d", c.stream, s.Why(), c.why, out.Len(), len(c.stream))
		}
		if body, end := s.Cut(0, 1); (body != nil || end != nil) != (c.why == None) {
			t.Errorf("%.60q: cut to %q and %q", c.stream, body, end)
		}
	}
}

// An engine that gives up with an error event is as good as dead: the event is held back.
func TestAnErrorEventIsHeldBack(t *testing.T) {
	s := newSeam(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	failure := `data: {"error":{"message":"CUDA out of memory"}}` + "\n\n"
	if got := s.Pass([]byte(delta + failure + "data: [DONE]\n\n")); string(got) != delta || string(s.Failure()) != failure || s.Whole() {
		t.Errorf("passed %q, held %q", got, s.Failure())
	}
	if body, _ := s.Cut(0, 1); !strings.Contains(string(body), `"assistant","content":"x"`) {
		t.Errorf("goes on with %s", body)
	}
}

// The room that texts take is asked for, and what is refused is not taken.
func TestTextsAreBoundedTogether(t *testing.T) {
	room := 2000
	var streams []*Seam
	for range 20 {
		s := newSeam(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
		s.text.store = &store{room: &room}
		s.Pass([]byte(delta))
		streams = append(streams, s)
	}
	held, refused := 0, 0
	for _, s := range streams {
		held += s.Held()
		if s.Why() == Memory {
			refused++
		}
	}
	if held > 2000 || held == 0 || refused == 0 || refused == 20 {
		t.Errorf("%d bytes held, %d streams refused", held, refused)
	}
}

// Many tokens to an event are counted by their bytes.
func TestSeveralTokensToAnEvent(t *testing.T) {
	s := newSeam(t, openai.PathCompletions, `{"prompt":"x","stream":true,"max_tokens":1000}`, false)
	s.Pass([]byte(`data: {"choices":[{"index":0,"text":"` + strings.Repeat("word ", 80) + `"}]}` + "\n\n"))
	if n := s.Tokens(); n != 100 {
		t.Errorf("400 bytes in one event are %d tokens", n)
	}
}

func FuzzSeam(f *testing.F) {
	for _, chat := range []bool{true, false} {
		w := worker{chat: chat, tokens: pieces, full: strings.Join(pieces, ""), prompt: 3, id: "x", ending: "\n\n"}
		f.Add(strings.Join(w.answer("", 0), ""), uint8(7), 90, chat)
	}
	f.Add(delta+"\n\r\n"+delta+"data: {\"error\":1}\r\n\r\n", uint8(1), 30, true)
	f.Add("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\\\"}}]}\n\n", uint8(3), 200, true)
	f.Fuzz(func(t *testing.T, stream string, piece uint8, cut int, chat bool) {
		body, path := `{"prompt":"x","stream":true,"max_tokens":100}`, openai.PathCompletions
		if chat {
			body, path = `{"messages":[{"role":"user","content":"x"}],"stream":true}`, openai.PathChat
		}
		q, _ := Examine([]byte(body), path, false)
		s := New(q, []byte(body), 4, Bounds{Text: 4096})
		cut = min(max(cut, 0), len(stream))
		pass := func(stream string) (out string) {
			for n := int(piece) + 1; len(stream) > 0; stream = stream[min(n, len(stream)):] {
				out += string(s.Pass([]byte(stream[:min(n, len(stream))])))
			}
			return out
		}
		out := pass(stream[:cut])
		if !strings.HasPrefix(stream, out) {
			t.Fatalf("what passed is not the stream: %q of %q", out, stream)
		}
		if s.Failure() == nil && out+string(s.Rest()) != stream[:cut] {
			t.Fatalf("lost %q", stream[len(out):cut])
		}
		if s.text.size > 4096 || len(s.held) > maxEvent+256 {
			t.Fatal("too much is held")
		}
		next, end := s.Cut(0, 5)
		if next == nil && end == nil {
			return
		}
		if next != nil && !json.Valid(next) {
			t.Fatalf("goes on with what is no JSON: %q", next)
		}
		pass(stream[cut:])
		s.Usage(1)
	})
}

func FuzzExamine(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"stream":true,"max_tokens":3}`), true, true)
	f.Add([]byte(`{"prompt":"x","stream":true,"stop":[]}`), false, false)
	f.Fuzz(func(t *testing.T, body []byte, chat, continued bool) {
		path := openai.PathCompletions
		if chat {
			path = openai.PathChat
		}
		q, why := Examine(body, path, continued)
		if why != None || !json.Valid(body) {
			return
		}
		if out := q.Body(body, []byte(`more`), 3); !json.Valid(out) || !bytes.Contains(out, []byte("more")) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

func BenchmarkPassPlain(b *testing.B) {
	s := newSeam(b, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.bounds.Text = 1 << 40
	ev := []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" cat"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	b.ReportAllocs()
	for b.Loop() {
		s.Pass(ev)
		s.text.tail, s.text.size = s.text.tail[:0], 0
	}
}
