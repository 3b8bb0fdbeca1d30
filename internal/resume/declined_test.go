package resume

import (
	"fmt"
	"strings"
	"testing"
)

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
