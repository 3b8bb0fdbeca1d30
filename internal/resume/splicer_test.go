package resume

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

// fakeEngine is a simulated engine with a fixed response: a request that contains the beginning of it gets the
// rest.
type fakeEngine struct {
	chat             bool
	fullText         string
	tokens           []string // of the whole response
	prompt           int
	id               string
	ascii            bool // escapes non-ASCII characters, as Python does
	ending           string
	roleInEveryEvent bool // repeats the role in every event
}

func quoteJSON(s string, ascii bool) string {
	b, _ := json.Marshal(s)
	if !ascii {
		return string(b)
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < 128:
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// streamAnswer streams the rest of the text after brought, at most limit tokens of it.
func (w *fakeEngine) streamAnswer(brought string, limit int) []string {
	rest := w.fullText[len(brought):]
	var tokens []string
	at := 0
	for _, tok := range w.tokens {
		if at >= len(brought) {
			tokens = append(tokens, tok)
		} else if at+len(tok) > len(brought) {
			tokens = append(tokens, tok[len(brought)-at:])
		}
		at += len(tok)
	}
	if strings.Join(tokens, "") != rest {
		panic("the stand-in is wrong")
	}
	finish := "stop"
	if limit > 0 && len(tokens) >= limit { // the end would take one more token
		tokens, finish = tokens[:limit], "length"
	}
	e := w.ending
	head := fmt.Sprintf(`data: {"id":%q,"object":"chunk","created":%d,"model":"m","choices":[{"index":0,`, w.id, len(w.id))
	var out []string
	if w.chat {
		out = append(out, head+`"delta":{"role":"assistant","content":""},"finish_reason":null}]}`+e)
	}
	for _, t := range tokens {
		switch {
		case w.chat && w.roleInEveryEvent:
			out = append(out, head+`"delta":{"role":"assistant","content":`+quoteJSON(t, w.ascii)+`},"logprobs":null,"finish_reason":null}]}`+e)
		case w.chat:
			out = append(out, head+`"delta":{"content":`+quoteJSON(t, w.ascii)+`},"logprobs":null,"finish_reason":null}]}`+e)
		default:
			out = append(out, head+`"text":`+quoteJSON(t, w.ascii)+`,"logprobs":null,"finish_reason":null}]}`+e)
		}
	}
	text := `"delta":{}`
	if !w.chat {
		text = `"text":""`
	}
	return append(out, head+text+`,"finish_reason":"`+finish+`"}]}`+e,
		fmt.Sprintf(`data: {"id":%q,"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}`, w.id, w.prompt, w.prompt+len(tokens), len(tokens))+e,
		"data: [DONE]"+e)
}

// testingT is the common interface of *testing.T and *rapid.T.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// readAnswer reads a stream as a client does.
type readAnswer struct {
	text, finish               string
	ids                        map[string]bool
	roles, finishes, doneCount int
	usage                      openai.TokenUsage
}

func readStream(t testingT, stream string) readAnswer {
	t.Helper()
	c := readAnswer{ids: map[string]bool{}}
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	if stream != "" && !strings.HasSuffix(stream, "\n\n") {
		t.Fatalf("the stream ends inside an event: %q", stream[max(0, len(stream)-200):])
	}
	for ev := range strings.SplitSeq(stream, "\n\n") {
		data, ok := strings.CutPrefix(ev, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			c.doneCount++
			continue
		}
		var o struct {
			ID      string
			Choices []struct {
				Delta        struct{ Role, Content string }
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
				Total      int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Fatalf("a torn event reached the client: %q: %v", data, err)
		}
		c.ids[o.ID] = true
		for _, ch := range o.Choices {
			c.text += ch.Delta.Content + ch.Text
			if ch.Delta.Role != "" && ch.Delta.Content == "" {
				c.roles++
			}
			if ch.FinishReason != "" {
				c.finish = ch.FinishReason
				c.finishes++
			}
		}
		if o.Usage != nil {
			c.usage = openai.TokenUsage{Prompt: o.Usage.Prompt, Completion: o.Usage.Completion, Stated: true}
			if o.Usage.Total != o.Usage.Prompt+o.Usage.Completion {
				t.Fatalf("usage does not add up: %q", data)
			}
		}
	}
	return c
}

// readContinuation returns what a request already contains of the response, and its limit.
func readContinuation(t testingT, body []byte, chat bool, prompt string) (text string, limit int) {
	t.Helper()
	var b struct {
		Messages []struct{ Role, Content string }
		Prompt   string
		Max      int   `json:"max_tokens"`
		Final    bool  `json:"continue_final_message"`
		Add      *bool `json:"add_generation_prompt"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatalf("the request that goes on cannot be read: %s: %v", body, err)
	}
	if !chat {
		text, ok := strings.CutPrefix(b.Prompt, prompt)
		if !ok {
			t.Fatalf("the prompt was changed: %q", b.Prompt)
		}
		return text, b.Max
	}
	last := b.Messages[len(b.Messages)-1]
	if last.Role != "assistant" {
		return "", b.Max
	}
	if !b.Final || b.Add == nil || *b.Add {
		t.Fatalf("the final message is not to be continued: %s", body)
	}
	return last.Content, b.Max
}

var sampleTokens = []string{" the", " cat", "\n", "\n\n", " ", "é", " 世界", "🙂", `"`, `\`, "\t", " a\nb", "<x>", "{}", "data: ", "x"}

// A stream that is cut anywhere, and cut again at the tier above, equals the uncut stream.
func TestResumedStreamReadsAsUncut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := fakeEngine{
			chat: rapid.Bool().Draw(t, "chat"), tokens: rapid.SliceOfN(rapid.SampledFrom(sampleTokens), 0, 20).Draw(t, "tokens"),
			prompt: 7, id: "one", ascii: rapid.Bool().Draw(t, "ascii"), roleInEveryEvent: rapid.Bool().Draw(t, "roles"),
			ending: rapid.SampledFrom([]string{"\n\n", "\r\n\r\n"}).Draw(t, "ending"),
		}
		w.fullText = strings.Join(w.tokens, "")
		limit := rapid.IntRange(0, 25).Draw(t, "limit")
		body := `{"prompt": "say", "stream":true,"stream_options":{"include_usage":true}`
		path := openai.PathCompletions
		if w.chat {
			body, path = `{"messages":[{"role":"user","content":"say"} ] ,"stream":true,"stream_options":{"include_usage":true}`, openai.PathChat
		}
		if limit > 0 {
			body += fmt.Sprintf(`,"max_tokens":%d`, limit)
		}
		body += "}"
		undisturbed := strings.Join(w.streamAnswer("", limit), "")
		want := readStream(t, undisturbed)

		zone := newTestSplicer(t, path, body, false)
		first, cutAt := undisturbed, rapid.IntRange(0, len(undisturbed)).Draw(t, "cut")
		got := passInPieces(t, zone, first[:cutAt])
		hasFirstID := len(readStream(t, got).ids) > 0
		if !zone.IsComplete() {
			next, end := zone.CutStream(0, 7)
			switch {
			case end != nil:
				got += string(end)
			case next == nil:
				t.Fatalf("cut at %d it cannot go on: %s", cutAt, zone.WhyNotResumable())
			default:
				got += answerContinuation(t, &w, zone, path, string(next), limit, zone.tokensBeforeCut)
			}
		}
		c := readStream(t, got)
		if c.text != want.text || c.doneCount != 1 || c.finishes != 1 || c.roles > max(want.roles, 1) {
			t.Fatalf("cut at %d: %d ends, %d finishes, %d roles, text\n%q, want\n%q\nstream %s", cutAt, c.doneCount, c.finishes, c.roles, c.text, want.text, got)
		}
		if len(c.ids) > 1 || hasFirstID != c.ids["one"] {
			t.Fatalf("ids %v; the first worker's id was passed before the cut: %v", c.ids, hasFirstID)
		}
		if c.usage != want.usage || c.finish != want.finish {
			t.Fatalf("cut at %d: the client was told %+v and %s, undisturbed it is %+v and %s", cutAt, c.usage, c.finish, want.usage, want.finish)
		}
		if !c.usage.Stated || zone.UsageOrEstimate(7).Completion != c.usage.Completion {
			t.Fatalf("the client was told %+v, the books say %+v", c.usage, zone.UsageOrEstimate(7))
		}
	})
}

// answerContinuation answers a continuation, which may itself be cut and continued.
func answerContinuation(t *rapid.T, w *fakeEngine, outer *Splicer, path, body string, limit, spent int) string {
	text, left := readContinuation(t, []byte(body), w.chat, "say")
	if limit > 0 && left != limit-spent+outer.whitespaceTokens {
		t.Fatalf("%d tokens may still come, want %d of %d", left, limit-spent, limit)
	}
	other := *w
	other.id = "two"
	if text != "" {
		other.prompt = w.prompt + spent - outer.whitespaceTokens
	}
	stream := strings.Join(other.streamAnswer(text, left), "")
	return passInPieces(t, outer, stream)
}

func newTestSplicer(t testingT, path, body string, continued bool) *Splicer {
	t.Helper()
	q, why := ExamineRequest([]byte(body), path, continued)
	if why != Resumable {
		t.Fatalf("%s: not resumable: %s", body, why)
	}
	return NewSplicer(q, []byte(body), 4, SpliceLimits{MaxTextBytes: 1 << 16})
}

// passInPieces passes a stream in pieces of any length.
func passInPieces(t *rapid.T, s *Splicer, stream string) string {
	var out strings.Builder
	for len(stream) > 0 {
		n := min(rapid.IntRange(1, 300).Draw(t, "piece"), len(stream))
		out.Write(s.PassChunk([]byte(stream[:n])))
		stream = stream[n:]
	}
	return out.String()
}

// newChatSplicer returns a splicer of a plain chat.
func newChatSplicer(t *testing.T) *Splicer {
	t.Helper()
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`)
	q, why := ExamineRequest(body, "/v1/chat/completions", false)
	if why != Resumable {
		t.Fatalf("the request cannot be resumed: %s", why)
	}
	return NewSplicer(q, body, 4, SpliceLimits{MaxTextBytes: 1 << 20})
}

// TestClientErrorEventPassesAndEndsTheStream: an error event that blames the request passes, ends the stream
// and is never resumed. Any other error event is a failure of the engine and does not pass.
func TestClientErrorEventPassesAndEndsTheStream(t *testing.T) {
	for _, c := range []struct {
		data     string
		declined bool
	}{
		{`{"error":{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}}`, true}, // SGLang, vLLM
		{`{"error":{"message":"x","code":"422"}}`, true},
		{`{"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}`, true},
		{`{"error":{"message":"x","type":"BadRequestError"}}`, true},
		{`{"error":"inputs tokens + max_new_tokens must be <= 4096","error_type":"validation"}`, true}, // TGI
		{`{"error":{"message":"x","type":"BadRequestError","code":500}}`, false},
		{`{"error":{"message":"BadRequestError","type":"InternalServerError","code":500}}`, false},
		{`{"error":{"message":"x","type":"server_error","code":"upstream_lost"}}`, false},
		{`{"error":{"message":"x"}}`, false},
		{`{"error":"generation failed","error_type":"generation"}`, false},
		{`{"error":{"code":400`, false},
	} {
		for _, joined := range []bool{false, true} {
			s := newChatSplicer(t)
			begin := `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}` + "\n\n"
			s.PassChunk([]byte(begin))
			if joined {
				if body, _ := s.CutStream(0, 5); body == nil {
					t.Fatal("the stream cannot be resumed")
				}
			}
			ev := "data: " + c.data + "\n\n"
			got := string(s.PassChunk([]byte(ev)))
			if !strings.HasSuffix(c.data, "}") {
				if s.DeclinedEvent() != nil || s.ErrorEvent() != nil {
					t.Errorf("%s: what is no JSON was read as an error", c.data)
				}
				continue
			}
			passed, declined, failed := got == ev, s.DeclinedEvent() != nil, s.ErrorEvent() != nil
			if passed != c.declined || declined != c.declined || failed == c.declined {
				t.Errorf("%s, joined %v: passed %v, declined %v, failed %v", c.data, joined, passed, declined, failed)
			}
			if c.declined && (s.LacksEnd() || s.WhyNotResumable() == Resumable) {
				t.Errorf("%s, joined %v: short %v, could be resumed: %q", c.data, joined, s.LacksEnd(), s.WhyNotResumable())
			}
			if rest := string(s.PassChunk([]byte("data: [DONE]\n\n"))); c.declined != (rest != "") {
				t.Errorf("%s, joined %v: after it %q passes", c.data, joined, rest)
			}
		}
	}
}

// TestStreamWithLogprobsIsNotResumable: a continuation has none for the text that was sent back.
func TestStreamWithLogprobsIsNotResumable(t *testing.T) {
	for _, c := range []struct {
		logprobs string
		want     NotResumableReason
	}{{`null`, Resumable}, {`{"content":[{"token":"a","logprob":-0.1}]}`, NonTextDelta}, {`{}`, NonTextDelta}} {
		for _, delta := range []string{`"delta":{"content":"a"}`, `"text":"a"`} {
			s := newChatSplicer(t)
			s.PassChunk([]byte(fmt.Sprintf(`data: {"id":"a","choices":[{"index":0,%s,"logprobs":%s,"finish_reason":null}]}`+"\n\n", delta, c.logprobs)))
			if got := s.WhyNotResumable(); got != c.want {
				t.Errorf("%s with logprobs %s: %q, want %q", delta, c.logprobs, got, c.want)
			}
		}
	}
}

func TestMassLossBudgetAllowsEachStreamOnce(t *testing.T) {
	var a MassLossBudget
	take := func(now time.Time, open int) (n int) {
		for range 1000 {
			if a.TakeResume(now, open) {
				n++
			}
		}
		return n
	}
	now := time.Unix(1, 0)
	if n := take(now, 200); n != 200 {
		t.Errorf("%d of 200 streams were resumed", n)
	}
	if n := take(now.Add(time.Second), 200); n != 10 {
		t.Errorf("a second after that %d were", n)
	}
	if n := take(now.Add(time.Hour), 200); n != 200 {
		t.Errorf("an hour after that %d were", n)
	}
	if n := take(now.Add(-time.Hour), 200); n != 0 {
		t.Errorf("by a clock that went back %d were", n)
	}
}
